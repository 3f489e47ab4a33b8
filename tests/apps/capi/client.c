/* SPDX-License-Identifier: Apache-2.0 */
/* The C interface in C99, for tests/apps/capi/capi_test.cpp:
 *   predict_client answers MODEL FILE N    the answers for the N samples of float32 or int64 in FILE, one number a line
 *   predict_client outputs MODEL FILE N    the network's outputs for them
 *   predict_client threads MODEL FILE N    8 threads with 200 calls each must give the bits of one
 *   predict_client same MODEL FILE N       the first call gives the bits of later ones, and equal samples of a call have equal bits
 *   predict_client exit MODEL FILE N       ends while threads run the model, with code 7
 *   predict_client fork MODEL FILE N       children run the model, whatever a thread of the parent was doing
 *   predict_client state MODEL FILE N      the rounding mode of the caller, in its first call too, changes no bit
 *   predict_client misuse MODEL DAMAGED    every failure must have its code and its message
 * The exit code is the number of expectations that failed. */
#define _POSIX_C_SOURCE 200809L
#include <fenv.h>
#include <halfstep_predict.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failures = 0;

static void expect(int ok, const char* what, int line) {
  if (ok) return;
  printf("client.c:%d: %s; hs_error: %s\n", line, what, hs_error());
  ++failures;
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)
/* A call that fails with a code and a message that contains a text. */
#define FAILS(call, code, text) (EXPECT((call) == (code)), EXPECT(strstr(hs_error(), (text)) != NULL))

/* A model, and samples from a file. */
struct job {
  hs_model* model;
  void* inputs;
  int64_t shape[HS_MAX_DIMS];
  int dims, dtype;
  int64_t count; /* of results */
  float* expected;
  int differing;
};

static int64_t product(const int64_t* sizes, int n) {
  int64_t out = 1;
  int i;
  for (i = 0; i < n; ++i) out *= sizes[i];
  return out;
}

static int load(struct job* job, const char* path, const char* file, int64_t samples) {
  int64_t output[HS_MAX_DIMS], numbers;
  size_t size;
  FILE* in = fopen(file, "rb");
  job->model = hs_open(path, NULL);
  EXPECT(in != NULL && job->model != NULL);
  if (!in || !job->model) return 0;
  job->shape[0] = samples;
  job->dims = 1 + hs_input(job->model, job->shape + 1, &job->dtype);
  job->count = samples * product(output, hs_output(job->model, output));
  numbers = product(job->shape, job->dims);
  size = job->dtype == HS_INT64 ? sizeof(int64_t) : sizeof(float);
  job->inputs = malloc((size_t)numbers * size);
  EXPECT(fread(job->inputs, size, (size_t)numbers, in) == (size_t)numbers);
  fclose(in);
  job->expected = malloc((size_t)job->count * sizeof(float));
  return job->inputs && job->expected;
}

static int64_t run(const struct job* job, int result, float* outputs) {
  return hs_run(job->model, result, job->dtype, job->inputs, job->shape, job->dims, outputs, job->count);
}

static void unload(struct job* job) {
  EXPECT(hs_close(job->model) == 0);
  free(job->inputs);
  free(job->expected);
}

static void* call_often(void* argument) {
  struct job* job = argument;
  float* mine = malloc((size_t)job->count * sizeof(float));
  int i;
  for (i = 0; mine && i < 200; ++i) {
    memset(mine, 0xff, (size_t)job->count * sizeof(float));
    if (run(job, HS_ANSWERS, mine) != job->count) ++job->differing;
    if (memcmp(mine, job->expected, (size_t)job->count * sizeof(float)) != 0) ++job->differing;
    /* Each thread has its own last error. */
    if (i % 50 == 0 && (hs_class(job->model, -1 - i) != NULL || !strstr(hs_error(), "hs_class"))) ++job->differing;
  }
  if (!mine) ++job->differing;
  free(mine);
  return NULL;
}

static void threads(struct job* job) {
  pthread_t all[8];
  struct job jobs[8];
  int i;
  for (i = 0; i < 8; ++i) {
    jobs[i] = *job;
    jobs[i].differing = 0;
  }
  EXPECT(run(job, HS_ANSWERS, job->expected) == job->count);
  for (i = 0; i < 8; ++i) EXPECT(pthread_create(&all[i], NULL, call_often, &jobs[i]) == 0);
  for (i = 0; i < 8; ++i) {
    pthread_join(all[i], NULL);
    EXPECT(jobs[i].differing == 0);
  }
}

/* The samples once, and once more behind them in another place of their batches. */
static void same(struct job* job) {
  const int64_t n = job->shape[0], each = product(job->shape + 1, job->dims - 1), result = job->count / n;
  const size_t size = (size_t)each * (job->dtype == HS_INT64 ? sizeof(int64_t) : sizeof(float));
  struct job twice = *job;
  float* again = malloc((size_t)job->count * sizeof(float));
  float* both = malloc(2 * (size_t)job->count * sizeof(float));
  char* inputs = malloc(2 * (size_t)n * size);
  int64_t i;
  int call;
  EXPECT(run(job, HS_OUTPUTS, job->expected) == job->count);
  for (call = 0; call < 4; ++call) {
    EXPECT(run(job, HS_OUTPUTS, again) == job->count);
    EXPECT(memcmp(again, job->expected, (size_t)job->count * sizeof(float)) == 0);
  }
  for (i = 0; i < n; ++i) {
    memcpy(inputs + (size_t)i * size, (char*)job->inputs + (size_t)i * size, size);
    memcpy(inputs + (size_t)(2 * n - 1 - i) * size, (char*)job->inputs + (size_t)i * size, size);
  }
  twice.inputs = inputs;
  twice.shape[0] = 2 * n;
  twice.count = 2 * job->count;
  EXPECT(run(&twice, HS_OUTPUTS, both) == twice.count);
  for (i = 0; i < n; ++i)
    EXPECT(memcmp(both + i * result, both + (2 * n - 1 - i) * result, (size_t)result * sizeof(float)) == 0);
  free(inputs);
  free(both);
  free(again);
}

static void* call_for_ever(void* argument) {
  struct job* job = argument;
  float* mine = malloc((size_t)job->count * sizeof(float));
  while (run(job, HS_ANSWERS, mine) == job->count) continue;
  EXPECT(strstr(hs_error(), "ending") != NULL);
  for (;;) pause();
  return NULL;
}

static void* open_for_ever(void* argument) {
  for (;;) hs_close(hs_open(argument, NULL));
  return NULL;
}

static void forks(struct job* job, char* path) {
  pthread_t running, opening;
  float* mine = malloc((size_t)job->count * sizeof(float));
  int k, status;
  EXPECT(run(job, HS_ANSWERS, job->expected) == job->count);
  EXPECT(pthread_create(&running, NULL, call_for_ever, job) == 0);
  EXPECT(pthread_create(&opening, NULL, open_for_ever, path) == 0);
  for (k = 0; k < 8; ++k) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(30);
      EXPECT(run(job, HS_ANSWERS, mine) == job->count);
      EXPECT(memcmp(mine, job->expected, (size_t)job->count * sizeof(float)) == 0);
      EXPECT(hs_close(hs_open(path, NULL)) == 0);
      fflush(stdout);
      _exit(failures);
    }
    EXPECT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

static void state(struct job* job) {
  float* up = malloc((size_t)job->count * sizeof(float));
  fesetround(FE_UPWARD);
  EXPECT(run(job, HS_ANSWERS, up) == job->count);
  EXPECT(fegetround() == FE_UPWARD);
  fesetround(FE_TONEAREST);
  EXPECT(run(job, HS_ANSWERS, job->expected) == job->count);
  EXPECT(memcmp(up, job->expected, (size_t)job->count * sizeof(float)) == 0);
  free(up);
}

static void misuse_of_open(const char* model, const char* damaged) {
  EXPECT(strcmp(hs_error(), "") == 0);
  FAILS(hs_open(NULL, NULL), NULL, "path must be a text, got NULL");
  FAILS(hs_open("no/such/run", NULL), NULL, "no/such/run");
  FAILS(hs_open(damaged, NULL), NULL, "model.safetensors");
  FAILS(hs_open(model, "{\"amp\": 1}"), NULL, "\"amp\"");
  FAILS(hs_open(model, "{\"ampp\": true}"), NULL, "\"ampp\"");
  FAILS(hs_open(model, "{"), NULL, "must be NULL or a JSON object");
  FAILS(hs_open(model, "{\"device\": \"tpu\"}"), NULL, "the option \"device\": tpu");
  EXPECT(strstr(hs_error(), "--device") == NULL);
  FAILS(hs_close(NULL), HS_BAD_ARGUMENT, "NULL");
  FAILS(hs_describe(NULL), NULL, "NULL");
  FAILS(hs_input(NULL, NULL, NULL), HS_BAD_ARGUMENT, "NULL");
  FAILS(hs_output(NULL, NULL), HS_BAD_ARGUMENT, "NULL");
  FAILS(hs_classes(NULL), HS_BAD_ARGUMENT, "NULL");
  FAILS(hs_class(NULL, 0), NULL, "NULL");
  FAILS(hs_run(NULL, 0, 0, NULL, NULL, 0, NULL, 0), HS_BAD_ARGUMENT, "NULL");
  FAILS(hs_threads(-1), HS_BAD_ARGUMENT, "got -1");
  EXPECT(hs_threads(0) >= 1);
  EXPECT(hs_threads(2) == 2);
  EXPECT(strstr(hs_version(), ".") != NULL);
}

/* The model takes [N, 5] float32 and has three classes. */
static void misuse_of_run(const char* path) {
  hs_model* m = hs_open(path, "{\"device\": \"cpu\", \"amp\": false, \"averages\": false}");
  const int64_t good[] = {2, 5}, none[] = {0, 5}, wide[] = {2, 6}, negative[] = {-1, 5}, huge[] = {INT64_MAX, 5},
                many[] = {1, 1, 1, 1, 1, 1, 1, 1, 5};
  const int64_t too_many[] = {(int64_t)1 << 42, 5};
  const int64_t whole[10] = {1, 0, 1, 0, 0, 0, 1, 0, 0, 1};
  const double wide_numbers[10] = {1, 0, 1, 0, 0, 0, 1, 0, 0, 1};
  float x[12] = {1, 0, 1, 0, 0, 0, 1, 0, 0, 1}, y[6], z[6];
  EXPECT(m != NULL);
  EXPECT(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, good, 2, y, 6) == 6);
  EXPECT(hs_run(m, HS_ANSWERS, HS_INT64, whole, good, 2, z, 6) == 6);
  EXPECT(memcmp(y, z, sizeof y) == 0);
  EXPECT(hs_run(m, HS_ANSWERS, HS_FLOAT64, wide_numbers, good, 2, z, 6) == 6);
  EXPECT(memcmp(y, z, sizeof y) == 0);
  EXPECT(hs_run(m, HS_ANSWERS, HS_FLOAT32, NULL, none, 2, NULL, 0) == 0);
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, wide, 2, y, 6), HS_BAD_INPUT, "of shape [5], got [2, 6]");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, good, 1, y, 6), HS_BAD_INPUT, "of shape [5], got [2]");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, many, 9, y, 6), HS_BAD_INPUT, "got 9 dimensions");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, negative, 2, y, 6), HS_BAD_INPUT, "got [-1, 5]");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, huge, 2, y, 6), HS_BAD_INPUT, "samples at once");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, good, 0, y, 6), HS_BAD_ARGUMENT, "shape");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, NULL, 2, y, 6), HS_BAD_ARGUMENT, "shape");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, NULL, good, 2, y, 6), HS_BAD_ARGUMENT, "inputs");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, good, 2, NULL, 6), HS_BAD_ARGUMENT, "room for 6 numbers, got NULL");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, good, 2, y, 5), HS_BAD_ARGUMENT, "room for 6 numbers, got 5");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, too_many, 2, y, 6), HS_BAD_ARGUMENT, "room for 13194139533312 numbers, got 6");
  x[8] = 1;
  FAILS(hs_run(m, HS_OUTPUTS, HS_FLOAT32, x, good, 2, y, 6), HS_BAD_INPUT, "sample 1: the 3 inputs of soil");
  x[8] = 0;
  FAILS(hs_run(m, HS_ANSWERS, 7, x, good, 2, y, 6), HS_BAD_ARGUMENT, "dtype");
  FAILS(hs_run(m, 7, HS_FLOAT32, x, good, 2, y, 6), HS_BAD_ARGUMENT, "result");
  EXPECT(hs_classes(m) == 3);
  EXPECT(strcmp(hs_class(m, 1), "birch") == 0);
  FAILS(hs_class(m, 3), NULL, "0..2, got 3");
  EXPECT(strstr(hs_describe(m), "\"answers\":\"probabilities\"") != NULL);
  EXPECT(hs_close(m) == 0);
  FAILS(hs_close(m), HS_BAD_ARGUMENT, "closed");
  FAILS(hs_run(m, HS_ANSWERS, HS_FLOAT32, x, good, 2, y, 6), HS_BAD_ARGUMENT, "closed");
  FAILS(hs_describe(m), NULL, "closed");
}

int main(int argc, char** argv) {
  static struct job job; /* threads use it after main has ended */
  int64_t i;
  if (argc == 4 && strcmp(argv[1], "misuse") == 0) {
    misuse_of_open(argv[2], argv[3]);
    misuse_of_run(argv[2]);
    return failures;
  }
  if (argc != 5 || !load(&job, argv[2], argv[3], strtoll(argv[4], NULL, 10))) return 99;
  if (strcmp(argv[1], "threads") == 0) {
    threads(&job);
  } else if (strcmp(argv[1], "same") == 0) {
    same(&job);
  } else if (strcmp(argv[1], "state") == 0) {
    state(&job);
  } else if (strcmp(argv[1], "fork") == 0) {
    forks(&job, argv[2]);
    return failures; /* while the threads call */
  } else if (strcmp(argv[1], "exit") == 0) {
    pthread_t thread;
    const struct timespec some = {0, 100000000};
    for (i = 0; i < 3; ++i) EXPECT(pthread_create(&thread, NULL, call_for_ever, &job) == 0);
    nanosleep(&some, NULL);
    return failures + 7;
  } else {
    EXPECT(run(&job, strcmp(argv[1], "outputs") == 0 ? HS_OUTPUTS : HS_ANSWERS, job.expected) == job.count);
    for (i = 0; i < job.count; ++i) printf("%.9g\n", (double)job.expected[i]);
  }
  unload(&job);
  return failures;
}
