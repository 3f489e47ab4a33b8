// SPDX-License-Identifier: Apache-2.0
// The only file that includes MPI; see transport_plugin.h. It is not part of halfstep's library.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "framework/comm/transport_plugin.h"

namespace {

constexpr int kRollTag = 75;  // tag of the messages of a roll call; any number

MPI_Comm g_data = MPI_COMM_NULL, g_roll = MPI_COMM_NULL;  // for operations, and for the roll call while one hangs
MPI_Request g_request = MPI_REQUEST_NULL;
int g_rank = 0, g_size = 1;
constexpr int kMaxRanks = 65536;  // ranks beyond take no part in roll calls, and count as alive
char g_sign_sent[kMaxRanks];      // by rank: whether it was sent this rank's sign of life
char g_heard[kMaxRanks];          // by rank: whether its sign of life has arrived
char g_alive = 1;                 // the sign of life, one byte

int open(int* rank, int* size, const HalfstepMeeting*) {
  int is_initialized = 0, thread_level = 0;
  MPI_Initialized(&is_initialized);
  int error = is_initialized ? MPI_SUCCESS : MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &thread_level);
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &g_data);
  if (error == MPI_SUCCESS) error = MPI_Comm_dup(MPI_COMM_WORLD, &g_roll);
  if (error != MPI_SUCCESS) return error;
  MPI_Comm_set_errhandler(g_data, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(g_roll, MPI_ERRORS_RETURN);
  MPI_Comm_rank(g_data, &g_rank);
  MPI_Comm_size(g_data, &g_size);
  *rank = g_rank;
  *size = g_size;
  return MPI_SUCCESS;
}

int close() {
  MPI_Comm_free(&g_data);
  MPI_Comm_free(&g_roll);
  return MPI_Finalize();
}

int all_to_all(const void* send, const int* send_counts, const int* send_offsets, void* receive, const int* receive_counts,
               const int* receive_offsets) {
  return MPI_Ialltoallv(send, send_counts, send_offsets, MPI_BYTE, receive, receive_counts, receive_offsets, MPI_BYTE, g_data,
                        &g_request);
}

int all_gather(const void* send, int bytes, void* receive, const int* counts, const int* offsets) {
  if (send == static_cast<char*>(receive) + offsets[g_rank]) send = MPI_IN_PLACE;
  return MPI_Iallgatherv(send, bytes, MPI_BYTE, receive, counts, offsets, MPI_BYTE, g_data, &g_request);
}

int broadcast(void* data, int bytes, int root) { return MPI_Ibcast(data, bytes, MPI_BYTE, root, g_data, &g_request); }

int barrier() { return MPI_Ibarrier(g_data, &g_request); }

int test(int* done) { return MPI_Test(&g_request, done, MPI_STATUS_IGNORE); }

// Sends a rank the sign of life, once.
int send_sign(int rank) {
  if (rank == g_rank || rank >= kMaxRanks || g_sign_sent[rank]) return MPI_SUCCESS;
  g_sign_sent[rank] = 1;
  MPI_Request sent;  // one byte, which needs no answer
  if (const int error = MPI_Isend(&g_alive, 1, MPI_CHAR, rank, kRollTag, g_roll, &sent)) return error;
  return MPI_Request_free(&sent);
}

// Receives the messages that have arrived, and answers them.
int answer_roll() {
  for (;;) {
    int has_message = 0;
    MPI_Status from;
    if (const int error = MPI_Iprobe(MPI_ANY_SOURCE, kRollTag, g_roll, &has_message, &from)) return error;
    if (!has_message) return MPI_SUCCESS;
    char alive = 0;
    if (const int error = MPI_Recv(&alive, 1, MPI_CHAR, from.MPI_SOURCE, kRollTag, g_roll, MPI_STATUS_IGNORE)) return error;
    if (from.MPI_SOURCE < kMaxRanks) g_heard[from.MPI_SOURCE] = 1;
    if (const int error = send_sign(from.MPI_SOURCE)) return error;
  }
}

int roll_call(char* heard) {
  for (int r = 0; r < g_size; ++r) {
    if (const int error = send_sign(r)) return error;
  }
  if (const int error = answer_roll()) return error;
  for (int r = 0; r < g_size; ++r) heard[r] = r == g_rank || r >= kMaxRanks || g_heard[r];
  return MPI_SUCCESS;
}

void error_text(int code, char* text, size_t room) {
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, words, &length) != MPI_SUCCESS) snprintf(words, sizeof words, "error %d", code);
  snprintf(text, room, "%s", words);
}

void describe(char* text, size_t room) {
  char words[MPI_MAX_LIBRARY_VERSION_STRING] = "MPI";
  int length = 0;
  MPI_Get_library_version(words, &length);
  words[strcspn(words, ",\n")] = 0;  // the rest describes the build
  // MPICH writes "MPICH Version:\t4.0"; this leaves "MPICH 4.0".
  constexpr char kVersion[] = " Version:\t";
  if (char* const label = strstr(words, kVersion)) {
    const char* const number = label + strlen(kVersion);
    memmove(label + 1, number, strlen(number) + 1);
  }
  snprintf(text, room, "%s", words);
}

}  // namespace

HALFSTEP_EXPORT_TRANSPORT
