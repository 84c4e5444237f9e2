// The collectives of collective_benchmark by MPI, to compare with: of the same sizes, timed alike.
//
//     mpicc -O2 -o mpi_collectives mpi_collectives.c
//     mpirun -np 4 mpi_collectives MEBIBYTES REPEATS LINK [COLLECTIVE]
//
// LINK only goes into the lines of JSON that are printed, one per collective.

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kValues = 61 };

static int rank;
static int ranks;

// Small whole numbers, so that sums are exact in any order.
static float Value(long index, int of_rank) { return (float)((index + 7L * of_rank) % kValues); }

static void Run(const char* name, const float* source, float* destination, long size) {
  const int part = (int)(size / ranks);
  if (strcmp(name, "all_reduce") == 0) {
    MPI_Allreduce(source, destination, (int)size, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(name, "all_gather") == 0) {
    MPI_Allgather(source, part, MPI_FLOAT, destination, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(name, "reduce_scatter") == 0) {
    MPI_Reduce_scatter_block(source, destination, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else {
    MPI_Alltoall(source, part, MPI_FLOAT, destination, part, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

static float Expected(const char* name, long place, long part) {
  if (strcmp(name, "all_gather") == 0) return Value(place, 0);
  if (strcmp(name, "all_to_all") == 0) return Value(rank * part + place % part, place / part);
  const long index = strcmp(name, "reduce_scatter") == 0 ? rank * part + place : place;
  float sum = 0;
  for (int of_rank = 0; of_rank < ranks; ++of_rank) sum += Value(index, of_rank);
  return sum;
}

static int Compare(const void* a, const void* b) {
  const double left = *(const double*)a;
  const double right = *(const double*)b;
  return (left > right) - (left < right);
}

static double Median(double* values, int count) {
  qsort(values, count, sizeof(double), Compare);
  return (values[count / 2] + values[(count - 1) / 2]) / 2;
}

static double Measure(const char* name, long size, int repeats) {
  const long part = size / ranks;
  const int is_gather = strcmp(name, "all_gather") == 0;
  const long source_size = is_gather ? part : size;
  const long destination_size = strcmp(name, "reduce_scatter") == 0 ? part : size;
  float* const source = malloc(source_size * sizeof(float));
  float* const destination = malloc(destination_size * sizeof(float));
  double* const seconds = malloc(repeats * sizeof(double));
  for (long i = 0; i < source_size; ++i) {
    source[i] = is_gather ? Value(rank * part + i, 0) : Value(i, rank);
  }
  memset(destination, 0xff, destination_size * sizeof(float));
  for (int i = 0; i < 1 + repeats; ++i) {  // the first warms up
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    Run(name, source, destination, size);
    const double own = MPI_Wtime() - start;
    double slowest = 0;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (i > 0) seconds[i - 1] = slowest;
  }
  for (long i = 0; i < destination_size; ++i) {
    if (destination[i] == Expected(name, i, part)) continue;
    fprintf(stderr, "rank %d: what %s leaves at %ld is wrong\n", rank, name, i);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const double median = Median(seconds, repeats);
  free(source);
  free(destination);
  free(seconds);
  return median;
}

int main(int argc, char** argv) {
  static const char* const kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc < 4) {
    fprintf(stderr, "usage: mpi_collectives MEBIBYTES REPEATS LINK [COLLECTIVE]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const long mebibytes = atol(argv[1]);
  for (int i = 0; i < 4; ++i) {
    if (argc > 4 && strcmp(argv[4], kNames[i]) != 0) continue;
    const double seconds = Measure(kNames[i], mebibytes << 18, atoi(argv[2]));
    const double least = (i == 0 ? 2.0 : 1.0) * (double)(mebibytes << 20) / ranks * (ranks - 1);
    if (rank != 0) continue;
    printf(
        "{\"collective\": \"%s\", \"devices\": %d, \"mebibytes\": %ld, \"link\": \"%s\", "
        "\"checksums\": false, \"seconds\": %.6f, \"bytes_per_second\": %.0f}\n",
        kNames[i], ranks, mebibytes, argv[3], seconds, least / seconds);
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}
