/* What libhalfstep_mpi.so gives to halfstep: a C interface, so that neither needs the other to be built.
 *
 * The library is made of one file, mpi_plugin.cpp, which includes only this header and mpi.h. Whoever has another MPI than the one
 * that halfstep was built with compiles that file again: mpicxx -O2 -fPIC -shared mpi_plugin.cpp -o libhalfstep_mpi.so
 *
 * All calls come from one thread. A call returns 0, or a number that error_text explains. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HALFSTEP_MPI_VERSION 1

typedef struct HalfstepMpi {
  int version; /* HALFSTEP_MPI_VERSION */
  /* MPI_Init_thread and the communicators. */
  int (*open)(int* rank, int* size);
  /* MPI_Finalize, which waits for all ranks. */
  int (*close)(void);
  /* Begin an operation, on bytes; at most one is under way. test: done is 1 when it is over. counts and offsets: of `size` parts.
   */
  int (*all_to_all)(const void* send, const int* send_counts, const int* send_offsets, void* receive, const int* receive_counts,
                    const int* receive_offsets);
  int (*all_gather)(const void* send, int bytes, void* receive, const int* counts, const int* offsets);
  int (*broadcast)(void* data, int bytes, int root);
  int (*barrier)(void);
  int (*test)(int* done);
  /* Tells all others that this rank lives, and sets heard[r] for those that have told it. Called again and again, until patience
   * ends. */
  int (*roll_call)(char* heard);
  /* Tells it to a rank that has called the roll, if one has. */
  int (*answer_roll)(void);
  /* Both fill at most `room` bytes, the last of them 0. */
  void (*error_text)(int code, char* text, size_t room);
  void (*describe)(char* text, size_t room); /* the library's name and version */
} HalfstepMpi;

/* The only symbol of the library. */
const HalfstepMpi* halfstep_mpi(void);

#ifdef __cplusplus
}
#endif
