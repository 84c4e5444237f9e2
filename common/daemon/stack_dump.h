#pragma once

namespace crossmesh {

// Writes the stacks of all threads of this process to standard error, each below its name, for
// somebody who has to find out where it hangs. Takes up to a second for each thread that does not
// answer, as one in the kernel. What addresses stand for needs the program with its symbols
// (addr2line). One at a time.
void DumpStacks();

// The same, and ends the process by SIGABRT.
[[noreturn]] void AbortWithStacks();

}  // namespace crossmesh
