// Stands in for NCCL in tests: one rank of two, whose values are in host memory and whose other rank has the same values.
// VERSION is the version that it reports. Its functions have the signatures of nccl.h.
#include <limits.h>
#include <stddef.h>
#include <string.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct {
  size_t size; unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs; const char *netName; int splitShare, trafficClass; const char *commName;
  int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched, graphUsageMode, numRmaCtx,
      maxP2pPeers, graphStreamOrdering, launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode, nvlsHostMode;
} ncclConfig_t;
typedef struct { int ranks, rank, polls, state; } *ncclComm_t;

// What a test asks for: the device of a stream.
enum { IN_ORDER = 0, LOST_LATER = 1, NEVER_ACCEPTED = 2, REFUSED = 3 };
static int finalized, destroyed, aborted;

void gristmill_ends(int *ends) { ends[0] = finalized, ends[1] = destroyed, ends[2] = aborted; }

int ncclGetVersion(int *version) { return *version = VERSION, 0; }
int ncclGetUniqueId(ncclUniqueId *id) { return memset(id->internal, 42, 128), 0; }
const char *ncclGetErrorString(int code) { return code == 6 ? "remote process exited" : code == 5 ? "invalid usage" : "other"; }

int ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  static int comms[8][4];
  static int used;
  int is_new = VERSION >= 23100;
  int is_right = config->magic == 0xcafebeef && config->blocking == 0 && config->splitShare == INT_MIN && !config->netName &&
      config->minCTAs == INT_MIN && config->size == (is_new ? sizeof *config : offsetof(ncclConfig_t, trafficClass) + 4) &&
      config->version == (is_new ? 23100 : 21700) &&
      (!is_new || (config->nvlsHostMode == INT_MAX && config->hostCftMode == INT_MIN && config->trafficClass == INT_MIN));
  if (!is_right || id.internal[127] != 42 || used == 8) return 5;
  *comm = (ncclComm_t)comms[used++];
  (*comm)->ranks = ranks, (*comm)->rank = rank, (*comm)->polls = 3, (*comm)->state = 0;
  return 7;
}
int ncclCommGetAsyncError(ncclComm_t comm, int *state) { return *state = comm->polls-- > 0 ? 7 : comm->state, 0; }
int ncclCommFinalize(ncclComm_t comm) { return comm->polls = 2, finalized++, 7; }
int ncclCommDestroy(ncclComm_t comm) { return (void)comm, destroyed++, 0; }
int ncclCommAbort(ncclComm_t comm) { return (void)comm, aborted++, 0; }

static int end(ncclComm_t comm, void *stream) {
  switch ((size_t)stream) {
    case LOST_LATER: return comm->state = 6, 0;
    case NEVER_ACCEPTED: return comm->polls = INT_MAX, 7;
    case REFUSED: return 5;
  }
  return 0;
}
int ncclAllReduce(const float *from, float *to, size_t count, int type, int op, ncclComm_t comm, void *stream) {
  if (type != 7 || op != 0) return 5;
  for (size_t i = 0; i < count; i++) to[i] = from[i] * comm->ranks;
  return end(comm, stream);
}
int ncclAllGather(const float *from, float *to, size_t count, int type, ncclComm_t comm, void *stream) {
  if (type != 7) return 5;
  for (int rank = 0; rank < comm->ranks; rank++) memcpy(to + rank * count, from, count * sizeof *from);
  return end(comm, stream);
}
int ncclBroadcast(const char *from, char *to, size_t bytes, int type, int root, ncclComm_t comm, void *stream) {
  if (type != 1 || from != to) return 5;
  memset(to, root + 1, bytes);
  return end(comm, stream);
}
static float sent[16];
int ncclSend(const float *from, size_t count, int type, int to, ncclComm_t comm, void *stream) {
  if (type != 7 || to == comm->rank) return 5;
  memcpy(sent, from, count * sizeof *from);
  return end(comm, stream);
}
int ncclRecv(float *to, size_t count, int type, int from, ncclComm_t comm, void *stream) {
  if (type != 7 || from == comm->rank) return 5;
  memcpy(to, sent, count * sizeof *to);
  return end(comm, stream);
}
