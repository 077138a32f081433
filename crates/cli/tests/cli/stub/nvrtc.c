/* A stub of NVRTC, see cuda.c: it accepts any source, or none with "refuses" in STUB_MODES. */
#include <stdlib.h>
#include <string.h>

static const char LOG[] = "gemv.cu(1): error: the test says no";

static int has(const char *word) {
    const char *modes = getenv("STUB_MODES");
    return modes && strstr(modes, word);
}

int nvrtcVersion(int *major, int *minor) { *major = has("old-nvrtc") ? 11 : 13; *minor = 2; return 0; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int headers, const char *const *sources,
                       const char *const *names) {
    (void)source; (void)name; (void)headers; (void)sources; (void)names;
    *program = (void *)LOG;
    return 0;
}
int nvrtcCompileProgram(void *program, int count, const char *const *options) {
    (void)program; (void)count; (void)options;
    return has("refuses") ? 6 : 0;
}
int nvrtcGetProgramLogSize(void *program, size_t *bytes) { (void)program; *bytes = sizeof LOG; return 0; }
int nvrtcGetProgramLog(void *program, char *log) { (void)program; memcpy(log, LOG, sizeof LOG); return 0; }
int nvrtcGetCUBINSize(void *program, size_t *bytes) { (void)program; *bytes = 4; return 0; }
int nvrtcGetCUBIN(void *program, char *code) { (void)program; memcpy(code, has("only-okay") ? "okay" : "code", 4); return 0; }
int nvrtcDestroyProgram(void **program) { *program = 0; return 0; }
