/* A stub of the CUDA driver for tests of failures: device memory is host memory, kernels do nothing. The words in the
 * environment variable STUB_MODES select failures. */
#include <stdlib.h>
#include <string.h>

enum { OUT_OF_MEMORY = 2, NO_DEVICE = 100, NO_BINARY_FOR_GPU = 209, LAUNCH_FAILED = 719 };
typedef unsigned long long address;

/* Bytes of device memory. The measurement of rates allocates half. */
#define MEMORY ((size_t)1 << 30)

static int lost = 0;

static int has(const char *word) {
    const char *modes = getenv("STUB_MODES");
    return modes && strstr(modes, word);
}

static int answer(void) { return lost ? LAUNCH_FAILED : 0; }

int cuDriverGetVersion(int *version) { *version = has("old-driver") ? 11040 : 13000; return 0; }
int cuInit(unsigned flags) { (void)flags; return has("no-device") ? NO_DEVICE : 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetName(char *name, int size, int device) { (void)device; strncpy(name, "Stub", size); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = MEMORY; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 75 ? (has("old-device") ? 6 : 9) /* capability, major */
        : attribute == 76 ? (has("old-device") ? 1 : 0)    /* minor */
        : attribute == 16 ? 132                            /* multiprocessors */
        : attribute == 97 ? 232448                         /* shared memory of a block */
        : 0;
    return 0;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == LAUNCH_FAILED ? "unspecified launch failure" : "something else";
    return 0;
}

static int thing;
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)device; *context = &thing; return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return 0; }
int cuCtxSetCurrent(void *context) { (void)context; return 0; }
int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = &thing; return 0; }
int cuStreamDestroy_v2(void *stream) { (void)stream; return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return answer(); }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = &thing; return 0; }
int cuEventRecord(void *event, void *stream) { (void)event; (void)stream; return answer(); }
int cuEventSynchronize(void *event) { (void)event; return answer(); }
int cuEventDestroy_v2(void *event) { (void)event; return 0; }

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    *total = MEMORY;
    *free = has("little-memory") ? 1 << 20 : MEMORY;
    return answer();
}
int cuMemAlloc_v2(address *at, size_t bytes) {
    if (lost) return LAUNCH_FAILED;
    if (has("no-memory") && bytes > 1 << 12) return OUT_OF_MEMORY;
    *at = (address)calloc(bytes, 1);
    return *at ? 0 : OUT_OF_MEMORY;
}
int cuMemFree_v2(address at) { free((void *)at); return answer(); }
int cuMemAllocHost_v2(void **at, size_t bytes) { *at = malloc(bytes); return 0; }
int cuMemFreeHost(void *at) { free(at); return 0; }
int cuMemsetD8Async(address at, unsigned char value, size_t bytes, void *stream) {
    (void)stream; memset((void *)at, value, bytes); return answer();
}
int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, void *stream) {
    (void)stream; memcpy((void *)to, from, bytes); return answer();
}
int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, void *stream) {
    (void)stream; memcpy(to, (void *)from, bytes); return answer();
}
int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, void *stream) {
    (void)stream; memcpy((void *)to, (void *)from, bytes); return answer();
}

int cuModuleLoadData(void **module, const void *image) {
    *module = &thing;
    if (has("new-code") || (has("only-okay") && memcmp(image, "okay", 4))) return NO_BINARY_FOR_GPU;
    return answer();
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module; (void)name; *function = &thing; return answer();
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
    (void)attribute; (void)function; *value = 0; return answer();
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)function; (void)attribute; (void)value; return answer();
}
int cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *at, const unsigned long long *size,
        const unsigned long long *strides, const unsigned *tile, const unsigned *steps, int interleave, int swizzle,
        int promotion, int fill) {
    (void)type; (void)rank; (void)at; (void)size; (void)strides; (void)tile; (void)steps; (void)interleave; (void)swizzle;
    (void)promotion; (void)fill;
    memset(map, 0, 128);
    return 0;
}
int cuLaunchKernelEx(const void *config, void *function, void **arguments, void **extra) {
    (void)config; (void)function; (void)arguments; (void)extra;
    /* As on a real device, who launches is not told, only who waits. */
    int before = answer();
    if (has("lost-device")) lost = 1;
    return before;
}

int cuStreamBeginCapture_v2(void *stream, int mode) { (void)stream; (void)mode; return answer(); }
int cuStreamEndCapture(void *stream, void **graph) { (void)stream; *graph = &thing; return answer(); }
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    (void)graph; (void)flags; *executable = &thing; return answer();
}
int cuGraphDestroy(void *graph) { (void)graph; return 0; }
int cuGraphLaunch(void *executable, void *stream) { (void)executable; (void)stream; return answer(); }
int cuGraphExecDestroy(void *executable) { (void)executable; return 0; }
