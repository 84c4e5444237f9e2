// All-reduces of F32 by bare sockets between processes of this host, with nothing else to do: what
// the way of the summands alone makes of the time. Straight: each rank sends every other one its
// summand of that one's piece, and adds where all have come. Round a ring: a rank adds its own
// summand to what has come, and hands the sum on. The sums then go round a ring to all, either way.
//
//     cc -O3 -march=native -o bare_sums tests/benchmark/peers/bare_sums.c
//     bare_sums DEVICES MEBIBYTES INSTANCE_MEBIBYTES ROUNDS
//
// The array is cut into instances, of which three are under way, and pieces into chunks of 1 MiB,
// as courses have them. Prints a line for each way in each round, in turns: the seconds of the
// slowest rank, and the processor seconds of all. Looks at every sum.

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRanksMax = 16, kBuffers = 3, kValues = 61, kQueueMax = 4096 };
static const int64_t kChunkBytes = 1 << 20;
static const int64_t kTurnBytes = 1 << 20;  // of one peer before the others have their turn

typedef enum { kStraight, kRing } Way;
typedef enum { kSummand, kSum, kTaken } Kind;

// What comes before a chunk. `kTaken`: all summands of an instance have been added, and nothing
// follows.
typedef struct {
  int32_t kind;
  int32_t instance;
  int32_t piece;
  int32_t round;  // hops that the chunk has behind it when it arrives
  int64_t offset;
  int64_t bytes;
} Head;

typedef struct {
  Head head;
  const char* payload;
  int64_t sent;  // with the head
} Outgoing;

typedef struct {
  int socket;
  Outgoing queue[kQueueMax];  // a ring
  int first, count;
  Head head;  // of what comes
  int64_t received;
} Peer;

typedef struct {
  int64_t summand_bytes[kRanksMax];  // by round; straight, all in the first
  int64_t sum_bytes;
  int taken;
  int is_reduced;
} Instance;

// What processes tell each other.
typedef struct {
  int arrived;
  double seconds[kRanksMax];
  double processor_seconds[kRanksMax];
} Shared;

static Way way;
static int ranks, rank;
static int64_t instance_bytes, piece_bytes;
static int instances, begun, done;
static Instance* instance_states;
static Peer peers[kRanksMax];
static char *source, *destination, *come, *partial;
static Shared* shared;

static int Next(void) { return (rank + 1) % ranks; }
static int Last(void) { return (rank + ranks - 1) % ranks; }
static char* In(char* array, int instance, int piece) {
  return array + instance * instance_bytes + piece * piece_bytes;
}
static char* InBuffer(char* array, int instance, int place) {
  return In(array, instance % kBuffers, place);
}

static void Check(int is_right, const char* what) {
  if (is_right) return;
  fprintf(stderr, "bare_sums: rank %d: %s\n", rank, what);
  exit(1);
}

static void Queue(int to, Head head, const char* payload) {
  Peer* const peer = &peers[to];
  Check(peer->count < kQueueMax, "expected a shorter queue");
  peer->queue[(peer->first + peer->count++) % kQueueMax] =
      (Outgoing){.head = head, .payload = payload};
}

static void QueuePiece(int to, Head head, const char* payload) {
  for (head.offset = 0; head.offset < piece_bytes; head.offset += kChunkBytes) {
    head.bytes = piece_bytes - head.offset < kChunkBytes ? piece_bytes - head.offset : kChunkBytes;
    Queue(to, head, payload + head.offset);
  }
}

static void BeginInstance(int instance) {
  for (int k = 1; k < ranks && (way == kStraight || k == 1); ++k) {
    const int piece = way == kStraight ? (rank + k) % ranks : Last();
    QueuePiece((rank + k) % ranks,
               (Head){.kind = kSummand, .instance = instance, .piece = piece, .round = 1},
               In(source, instance, piece));
  }
}

static int IsDone(const Instance* instance) {
  return instance->is_reduced && instance->sum_bytes == (ranks - 1) * piece_bytes &&
         instance->taken == (way == kStraight ? ranks - 1 : 1);
}

static void Advance(void) {
  while (done < begun && IsDone(&instance_states[done])) ++done;
  while (begun < instances && begun < done + kBuffers) BeginInstance(begun++);
}

static void Add(const char* a, const char* b, char* out, int64_t bytes) {
  const float* const left = (const float*)a;
  const float* const right = (const float*)b;
  float* const sum = (float*)out;
  for (int64_t i = 0; i < bytes / 4; ++i) sum[i] = left[i] + right[i];
}

static void AddAll(int instance) {
  const int64_t block = 16 << 10;
  char* const out = In(destination, instance, rank);
  for (int64_t begin = 0; begin < piece_bytes; begin += block) {
    const int64_t bytes = piece_bytes - begin < block ? piece_bytes - begin : block;
    const char* sum = In(source, instance, rank) + begin;
    for (int k = 0; k < ranks; ++k) {
      if (k == rank) continue;
      Add(sum, InBuffer(come, instance, k) + begin, out + begin, bytes);
      sum = out + begin;
    }
  }
}

static void OnReduced(int instance) {
  instance_states[instance].is_reduced = 1;
  for (int k = 0; k < ranks; ++k) {
    if (k != rank && (way == kStraight || k == Last()))
      Queue(k, (Head){.kind = kTaken, .instance = instance}, NULL);
  }
  QueuePiece(Next(), (Head){.kind = kSum, .instance = instance, .piece = rank, .round = 1},
             In(destination, instance, rank));
  Advance();
}

static void OnSummand(const Head* head) {
  int64_t* const bytes = &instance_states[head->instance].summand_bytes[head->round];
  *bytes += head->bytes;
  if (*bytes < piece_bytes * (way == kStraight ? ranks - 1 : 1)) return;
  if (way == kStraight) {
    AddAll(head->instance);
    return OnReduced(head->instance);
  }
  const int is_last = head->round == ranks - 1;
  char* const out = is_last ? In(destination, head->instance, rank)
                            : InBuffer(partial, head->instance, head->round);
  Add(InBuffer(come, head->instance, head->round), In(source, head->instance, head->piece), out,
      piece_bytes);
  if (is_last) return OnReduced(head->instance);
  Head next = *head;
  ++next.round;
  QueuePiece(Next(), next, out);
}

static char* PlaceOf(const Head* head, int from) {
  if (head->kind == kSum) return In(destination, head->instance, head->piece) + head->offset;
  return InBuffer(come, head->instance, way == kStraight ? from : head->round) + head->offset;
}

static void OnMessage(const Head* head) {
  Instance* const instance = &instance_states[head->instance];
  if (head->kind == kSummand) return OnSummand(head);
  if (head->kind == kTaken) ++instance->taken;
  if (head->kind == kSum) {
    instance->sum_bytes += head->bytes;
    Head next = *head;
    ++next.round;
    if (next.round < ranks) Queue(Next(), next, PlaceOf(head, rank));
  }
  Advance();
}

static void Receive(int from) {
  Peer* const peer = &peers[from];
  const int64_t head_bytes = sizeof(Head);
  for (int64_t turn = 0; turn < kTurnBytes;) {
    if (peer->received < head_bytes || peer->received < head_bytes + peer->head.bytes) {
      const int is_head = peer->received < head_bytes;
      char* const place = is_head ? (char*)&peer->head + peer->received
                                  : PlaceOf(&peer->head, from) + (peer->received - head_bytes);
      const int64_t wanted = head_bytes + (is_head ? 0 : peer->head.bytes) - peer->received;
      const ssize_t got = read(peer->socket, place, wanted);
      Check(got != 0, "a stream has ended early");
      if (got < 0) return;
      peer->received += got;
      turn += got;
    }
    if (peer->received < head_bytes || peer->received < head_bytes + peer->head.bytes) continue;
    peer->received = 0;
    const Head head = peer->head;
    OnMessage(&head);
  }
}

static void Send(int to) {
  Peer* const peer = &peers[to];
  const int64_t head_bytes = sizeof(Head);
  for (int64_t turn = 0; peer->count > 0 && turn < kTurnBytes;) {
    Outgoing* const first = &peer->queue[peer->first];
    const int64_t head_sent = first->sent < head_bytes ? first->sent : head_bytes;
    const int64_t sent = first->sent - head_sent;
    const struct iovec pieces[] = {{(char*)&first->head + head_sent, head_bytes - head_sent},
                                   {(char*)first->payload + sent, first->head.bytes - sent}};
    const ssize_t got = writev(peer->socket, pieces, 2);
    if (got < 0) return;
    first->sent += got;
    turn += got;
    if (first->sent < head_bytes + first->head.bytes) return;
    peer->first = (peer->first + 1) % kQueueMax;
    --peer->count;
  }
}

static int IsOver(void) {
  int queued = 0;
  for (int k = 0; k < ranks; ++k) queued += peers[k].count;
  return done == instances && queued == 0;
}

static void Reduce(void) {
  memset(instance_states, 0, instances * sizeof(Instance));
  begun = done = 0;
  Advance();
  while (!IsOver()) {
    struct pollfd polled[kRanksMax];
    for (int k = 0; k < ranks; ++k) {
      // A negative one is passed over.
      polled[k] = (struct pollfd){.fd = k == rank ? -1 : peers[k].socket,
                                  .events = POLLIN | (peers[k].count > 0 ? POLLOUT : 0)};
    }
    poll(polled, ranks, -1);
    for (int k = 0; k < ranks; ++k) {
      if (polled[k].revents & POLLIN) Receive(k);
      if (polled[k].revents & POLLOUT) Send(k);
    }
  }
}

static void Wait(int times) {
  __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < times * ranks) sched_yield();
}

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

static double ProcessorSeconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

static float Value(int64_t index, int of_rank) { return (float)((index + 7 * of_rank) % kValues); }

static void CheckSums(int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    float sum = 0;
    for (int k = 0; k < ranks; ++k) sum += Value(i, k);
    Check(((const float*)destination)[i] == sum, "a sum is wrong");
  }
}

static void Print(int round) {
  double seconds = 0;
  double processor_seconds = 0;
  for (int k = 0; k < ranks; ++k) {
    if (shared->seconds[k] > seconds) seconds = shared->seconds[k];
    processor_seconds += shared->processor_seconds[k];
  }
  printf("round %d  %-13s %6.3f s, %6.3f s of processors\n", round,
         way == kStraight ? "straight" : "round a ring", seconds, processor_seconds);
  fflush(stdout);
}

static void RunRank(int64_t bytes, int rounds) {
  source = malloc(bytes);
  destination = malloc(bytes);
  come = malloc(kBuffers * instance_bytes);
  partial = malloc(kBuffers * instance_bytes);
  instance_states = calloc(instances, sizeof(Instance));
  for (int64_t i = 0; i < bytes / 4; ++i) ((float*)source)[i] = Value(i, rank);
  memset(come, 1, kBuffers * instance_bytes);
  memset(partial, 1, kBuffers * instance_bytes);
  int waits = 0;
  for (int round = 0; round <= rounds; ++round) {
    for (way = kStraight; way <= kRing; ++way) {
      memset(destination, 0, bytes);
      Wait(++waits);
      const double begin = Seconds();
      const double processor_begin = ProcessorSeconds();
      Reduce();
      shared->processor_seconds[rank] = ProcessorSeconds() - processor_begin;
      shared->seconds[rank] = Seconds() - begin;
      CheckSums(bytes / 4);
      Wait(++waits);
      // The first round touches memory.
      if (rank == 0 && round > 0) Print(round);
      Wait(++waits);
    }
  }
}

// As workers have it inside a host, and before there is a connection: one that has begun to pace goes
// on with it, whatever is chosen then.
static int Socket(void) {
  const int one = 1, made = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
  return made;
}

// Streams between all pairs of ranks; this process keeps both ends.
static void Connect(int ends[kRanksMax][kRanksMax]) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  const int listener = Socket();  // what it accepts has the same
  Check(bind(listener, (struct sockaddr*)&address, size) == 0 && listen(listener, 1) == 0 &&
            getsockname(listener, (struct sockaddr*)&address, &size) == 0,
        "no socket");
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      ends[a][b] = Socket();
      Check(connect(ends[a][b], (struct sockaddr*)&address, size) == 0, "no connection");
      ends[b][a] = accept(listener, NULL, NULL);
      fcntl(ends[a][b], F_SETFL, O_NONBLOCK);
      fcntl(ends[b][a], F_SETFL, O_NONBLOCK);
    }
  }
}

int main(int count, char** arguments) {
  Check(count == 5, "expected DEVICES, MEBIBYTES, INSTANCE_MEBIBYTES and ROUNDS");
  ranks = atoi(arguments[1]);
  const int64_t bytes = atol(arguments[2]) << 20;
  instance_bytes = atol(arguments[3]) << 20;
  Check(ranks >= 2 && ranks <= kRanksMax, "expected 2 to 16 devices");
  Check(instance_bytes > 0 && bytes % instance_bytes == 0 && instance_bytes % (4 * ranks) == 0,
        "expected whole instances, and whole pieces in them");
  piece_bytes = instance_bytes / ranks;
  instances = (int)(bytes / instance_bytes);
  int ends[kRanksMax][kRanksMax];
  Connect(ends);
  shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  for (rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    for (int k = 0; k < ranks; ++k) peers[k].socket = ends[rank][k];
    RunRank(bytes, atoi(arguments[4]));
    return 0;
  }
  int failed = 0;
  for (int k = 0; k < ranks; ++k) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  return failed != 0;
}
