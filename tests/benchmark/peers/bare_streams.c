// What TCP itself does between processes of this host: each rank sends as many bytes as in an
// all-to-all to every other one, from memory to memory, and does nothing else.
//
//     cc -O3 -o bare_streams tests/benchmark/peers/bare_streams.c
//     bare_streams DEVICES MEBIBYTES ROUNDS [CONGESTION_CONTROL [BUFFER_KIBIBYTES [pairs]]]
//
// A rank's array has MEBIBYTES, of which it sends each of the others an equal part. By the
// system's congestion control, or the one that is named; with the system's buffers (0), or as large
// as that; with all others at once, or, of a power of two of ranks, with one at a time. Prints a
// line of JSON with the median seconds of the slowest rank, after a round that warms up, and the
// processor seconds of all.

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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kRanksMax = 16, kRoundsMax = 100 };
static const int64_t kTurnBytes = 4 << 20;  // of one stream before the others have their turn

// What processes tell each other.
typedef struct {
  int arrived;
  double seconds[kRanksMax];
  double processor_seconds[kRanksMax];
} Shared;

typedef struct {
  int64_t sent;
  int64_t received;
} Progress;

static int ranks, rank;
static int is_by_pairs;
static int64_t part_bytes;
static int sockets[kRanksMax][kRanksMax];  // of a rank, to another one
static char *source, *destination;
static Shared* shared;

static void Check(int is_right, const char* what) {
  if (is_right) return;
  perror(what);
  exit(1);
}

static double Seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double ProcessorSeconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// Of connections.
typedef struct {
  const char* congestion_control;  // NULL: the system's
  int buffer_bytes;                // 0: the system's
} Options;

// Before there is a connection: one that has begun to pace goes on with it, whatever is chosen then.
static void Choose(int socket, Options options) {
  const int one = 1;
  Check(setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0, "TCP_NODELAY");
  if (options.congestion_control != NULL) {
    Check(setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, options.congestion_control,
                     strlen(options.congestion_control)) == 0,
          options.congestion_control);
  }
  if (options.buffer_bytes > 0) {
    const int bytes = options.buffer_bytes;
    Check(setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) == 0 &&
              setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0,
          "buffers");
  }
}

static void Join(int a, int b, Options options) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(at);
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  Choose(listener, options);  // what it accepts has the same
  Check(bind(listener, (struct sockaddr*)&at, size) == 0 && listen(listener, 1) == 0 &&
            getsockname(listener, (struct sockaddr*)&at, &size) == 0,
        "listening");
  sockets[a][b] = socket(AF_INET, SOCK_STREAM, 0);
  Choose(sockets[a][b], options);
  Check(connect(sockets[a][b], (struct sockaddr*)&at, size) == 0, "connecting");
  sockets[b][a] = accept(listener, NULL, NULL);
  Check(sockets[b][a] >= 0, "accepting");
  close(listener);
  Check(fcntl(sockets[a][b], F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
  Check(fcntl(sockets[b][a], F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
}

static size_t Turn(int64_t done) {
  const int64_t left = part_bytes - done;
  return (size_t)(left < kTurnBytes ? left : kTurnBytes);
}

static void Work(int other, const struct pollfd* ready, Progress* of) {
  if (ready->revents & POLLIN) {
    const ssize_t bytes =
        recv(ready->fd, destination + other * part_bytes + of->received, Turn(of->received), 0);
    Check(bytes > 0, "receiving");
    of->received += bytes;
  }
  if (ready->revents & POLLOUT) {
    const ssize_t bytes =
        send(ready->fd, source + other * part_bytes + of->sent, Turn(of->sent), MSG_NOSIGNAL);
    Check(bytes > 0, "sending");
    of->sent += bytes;
  }
}

// In pairs: the first one that is not done, of an order in which all pairs differ.
static int IsTurnOf(int other, const Progress* progress) {
  if (!is_by_pairs) return 1;
  for (int distance = 1; distance < (rank ^ other); ++distance) {
    const Progress* before = &progress[rank ^ distance];
    if (before->received < part_bytes || before->sent < part_bytes) return 0;
  }
  return 1;
}

static void MoveAll(void) {
  Progress progress[kRanksMax] = {0};
  while (1) {
    struct pollfd ready[kRanksMax];
    int open = 0;
    for (int k = 0; k < ranks; ++k) {
      const short in = progress[k].received < part_bytes ? POLLIN : 0;
      const short out = progress[k].sent < part_bytes ? POLLOUT : 0;
      const int is_open = k != rank && (in | out) != 0 && IsTurnOf(k, progress);
      ready[k] = (struct pollfd){.fd = is_open ? sockets[rank][k] : -1, .events = in | out};
      open += is_open;
    }
    if (open == 0) return;
    Check(poll(ready, (nfds_t)ranks, -1) > 0, "poll");
    for (int k = 0; k < ranks; ++k) {
      if (ready[k].fd >= 0) Work(k, &ready[k], &progress[k]);
    }
  }
}

// Until all ranks have come here for the `time`-th time.
static void Barrier(int time) {
  __atomic_add_fetch(&shared->arrived, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&shared->arrived, __ATOMIC_SEQ_CST) < ranks * time) sched_yield();
}

static int Less(const void* a, const void* b) {
  return *(const double*)a < *(const double*)b ? -1 : 1;
}

static void Report(double* seconds, double processor_seconds, int rounds) {
  qsort(seconds, (size_t)rounds, sizeof(*seconds), Less);
  const double median = seconds[rounds / 2];
  printf("{\"collective\": \"streams\", \"devices\": %d, \"seconds\": %.6f, "
         "\"processor_seconds\": %.6f, \"bytes_per_second\": %.0f}\n",
         ranks, median, processor_seconds / rounds, (double)part_bytes * (ranks - 1) / median);
}

static void RunRank(int rounds) {
  double slowest[kRoundsMax], processor_seconds = 0;
  source = malloc((size_t)(part_bytes * ranks));
  destination = malloc((size_t)(part_bytes * ranks));
  Check(source != NULL && destination != NULL, "memory");
  memset(source, 1, (size_t)(part_bytes * ranks));
  memset(destination, 2, (size_t)(part_bytes * ranks));
  for (int round = 0; round <= rounds; ++round) {
    Barrier(3 * round + 1);
    const double begin = Seconds(), processor_begin = ProcessorSeconds();
    MoveAll();
    shared->seconds[rank] = Seconds() - begin;
    shared->processor_seconds[rank] = ProcessorSeconds() - processor_begin;
    Barrier(3 * round + 2);
    if (rank == 0 && round > 0) {
      slowest[round - 1] = 0;
      for (int k = 0; k < ranks; ++k) {
        if (shared->seconds[k] > slowest[round - 1]) slowest[round - 1] = shared->seconds[k];
        processor_seconds += shared->processor_seconds[k];
      }
    }
    Barrier(3 * round + 3);
  }
  if (rank == 0) Report(slowest, processor_seconds, rounds);
}

// Says how it is called.
static int Refuse(void) {
  fprintf(stderr, "usage: bare_streams DEVICES MEBIBYTES ROUNDS "
                  "[CONGESTION_CONTROL [BUFFER_KIBIBYTES [pairs]]]\n"
                  "with 2 to %d devices, in pairs a power of two of them, and 1 to %d rounds\n",
          kRanksMax, kRoundsMax);
  return 2;
}

int main(int count, char** arguments) {
  if (count < 4) return Refuse();
  ranks = atoi(arguments[1]);
  const int rounds = atoi(arguments[3]);
  if (ranks < 2 || ranks > kRanksMax || rounds < 1 || rounds > kRoundsMax) return Refuse();
  is_by_pairs = count > 6;
  if (is_by_pairs && (ranks & (ranks - 1)) != 0) return Refuse();
  const Options options = {.congestion_control = count > 4 ? arguments[4] : NULL,
                           .buffer_bytes = count > 5 ? atoi(arguments[5]) << 10 : 0};
  part_bytes = ((int64_t)atoi(arguments[2]) << 20) / ranks;
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Check(shared != MAP_FAILED, "shared memory");
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) Join(a, b, options);
  }
  for (rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    RunRank(rounds);
    exit(0);
  }
  int failed = 0, status = 0;
  while (wait(&status) > 0) failed |= status;
  return failed != 0;
}
