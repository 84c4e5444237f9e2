#include "worker/python/lent_buffers.h"

#include <cstddef>
#include <span>
#include <utility>

namespace crossmesh {

std::shared_ptr<Arena> LentBuffers::Lend(nanobind::handle object) {
  Collect();
  auto buffer = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(object.ptr(), buffer.get(), PyBUF_SIMPLE | PyBUF_WRITABLE) != 0) {
    throw nanobind::python_error();
  }
  const std::span bytes(static_cast<std::byte*>(buffer->buf), static_cast<size_t>(buffer->len));
  std::shared_ptr<Arena> arena = Arena::Borrow(bytes);
  Arena* const lent = arena.get();
  return {lent, [self = shared_from_this(), arena = std::move(arena),
                 released = buffer.release()](Arena* /*lent*/) mutable {
            arena = nullptr;
            self->Return(released);
          }};
}

void LentBuffers::Return(Py_buffer* buffer) {
  MutexLock lock(mutex_);
  returned_.push_back(buffer);
}

void LentBuffers::Collect() {
  std::vector<Py_buffer*> returned;
  {
    MutexLock lock(mutex_);
    returned.swap(returned_);
  }
  for (Py_buffer* const buffer : returned) {
    PyBuffer_Release(buffer);
    delete buffer;
  }
}

}  // namespace crossmesh
