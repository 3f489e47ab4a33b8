// SPDX-License-Identifier: Apache-2.0
/* The interface of libhalfstep_mpi.so and libhalfstep_gloo.so to halfstep, in C, so that neither needs the other to be built.
 *
 * Each is made of one file, mpi_plugin.cpp or gloo_plugin.cpp, which includes only this header and those of its library. For
 * another MPI than the one that halfstep was built with, compile that file again:
 * mpicxx -O2 -fPIC -shared -I. framework/comm/mpi_plugin.cpp -o libhalfstep_mpi.so
 *
 * All calls come from one thread. A call returns 0, or a number that error_text explains. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HALFSTEP_TRANSPORT_VERSION 2

/* Ranks that no launcher of MPI started, after they have met (framework/comm/rendezvous.h). */
typedef struct HalfstepMeeting {
  int rank, size;
  const char* address; /* of this machine, as the other ranks reach it: a numeric IP address */
  double timeout_s;    /* for the connections */
  void* self;
  /* Sets all = the ranks' `mine`, `bytes` of each, in their order. If it returns another value than 0, open returns that, too. */
  int (*gather)(void* self, const void* mine, int bytes, void* all);
} HalfstepMeeting;

typedef struct HalfstepTransport {
  int version; /* HALFSTEP_TRANSPORT_VERSION */
  /* MPI gets rank and size from its launcher, and ignores `meeting`; others take them from it. */
  int (*open)(int* rank, int* size, const HalfstepMeeting* meeting);
  /* Leaves the job; all ranks call it. */
  int (*close)(void);
  /* Begin an operation, on bytes; at most one is under way. counts and offsets: of `size` parts. all_gather: `send` is
   * elsewhere than `receive`, or on all ranks already in its place there. test: done is 1 when the operation is over; it may wait
   * for that, but no longer than some milliseconds. */
  int (*all_to_all)(const void* send, const int* send_counts, const int* send_offsets, void* receive, const int* receive_counts,
                    const int* receive_offsets);
  int (*all_gather)(const void* send, int bytes, void* receive, const int* counts, const int* offsets);
  int (*broadcast)(void* data, int bytes, int root);
  int (*barrier)(void);
  int (*test)(int* done);
  /* Sends all others a sign of life of this rank, and sets heard[r] for those whose sign has arrived. Called repeatedly until a
   * deadline. */
  int (*roll_call)(char* heard);
  /* Sends a sign of life to a rank that has called roll_call, if one has. */
  int (*answer_roll)(void);
  /* Write a text of at most `room` bytes, of which the last one is 0. */
  void (*error_text)(int code, char* text, size_t room);
  void (*describe)(char* text, size_t room); /* the library's name and version */
} HalfstepTransport;

/* Returns the functions of the library. It is its only symbol. */
const HalfstepTransport* halfstep_transport(void);

/* Defines halfstep_transport() with functions that have the names of the table's entries. */
#define HALFSTEP_EXPORT_TRANSPORT                                                                       \
  extern "C" __attribute__((visibility("default"))) const HalfstepTransport* halfstep_transport(void) { \
    static const HalfstepTransport table = {HALFSTEP_TRANSPORT_VERSION,                                 \
                                            open,                                                       \
                                            close,                                                      \
                                            all_to_all,                                                 \
                                            all_gather,                                                 \
                                            broadcast,                                                  \
                                            barrier,                                                    \
                                            test,                                                       \
                                            roll_call,                                                  \
                                            answer_roll,                                                \
                                            error_text,                                                 \
                                            describe};                                                  \
    return &table;                                                                                      \
  }

#ifdef __cplusplus
}
#endif
