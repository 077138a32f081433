/* libgristmill: runs quantised language models. Made of crates/c/src; do not edit.
 *
 * A request is JSON of the interfaces of `gristmill serve`, and its reply arrives as events:
 *
 *     gm_engine *engine = NULL;
 *     gm_request *request = NULL;
 *     if (gm_engine_open("model.gguf", NULL, &engine) != GM_OK) { puts(gm_last_error()); return 1; }
 *     gm_chat(engine, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}", print, NULL, &request);
 *     gm_wait(request, -1);
 *     gm_request_free(request);
 *     gm_engine_free(engine);
 *
 * Threads. Every function may be called from any thread, and several may be called with one handle at a time. Only a
 * handle that is being freed must not be in use by another thread. `gm_last_error` is of the calling thread.
 *
 * Callbacks. The callback of a request is called on a thread of this request, with one event at a time, and
 * `GM_EVENT_END` is the last. After `gm_request_free` has returned, it is not called. So do not call `gm_request_free` with a
 * lock that the callback takes.
 *
 * Pointers. Strings that go in end with a NUL, are UTF-8, and can be freed when the function has returned. A pointer that
 * comes out is freed by the function that its description names. An argument that is NULL is an error, unless its
 * description says otherwise; `user` can be anything.
 *
 * Processes. A child of fork() must not use handles of its parent: it has none of the threads. */


#ifndef GRISTMILL_H
#define GRISTMILL_H

#include <stddef.h>
#include <stdint.h>

/* The start of options: gm_options options = GM_OPTIONS_INIT; */
#define GM_OPTIONS_INIT { sizeof(gm_options), NULL, 0, 0, 0, 0, 0, 0, 0, 0 }
/* The start of vectors. */
#define GM_VECTORS_INIT { sizeof(gm_vectors), NULL, 0, 0 }

/**
 * The version of the interface. It changes if a program must be compiled again; new functions and new fields at the end of a
 * struct do not change it.
 */
#define GM_ABI_VERSION 1

/**
 * The result of a function. `gm_last_error` returns the message of a failure.
 */
enum gm_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * Success.
     */
    GM_OK = 0,
    /**
     * An argument or a field of the request is wrong.
     */
    GM_BAD_REQUEST = 1,
    /**
     * Too many requests wait. The same request can succeed later.
     */
    GM_BUSY = 2,
    /**
     * The engine has failed. A new engine can serve requests.
     */
    GM_UNAVAILABLE = 3,
    /**
     * A fault of the library or of the model file.
     */
    GM_INTERNAL = 4,
    /**
     * The model or its context does not fit into the memory.
     */
    GM_OUT_OF_MEMORY = 5,
    /**
     * The model cannot be opened or read.
     */
    GM_FILE = 6,
    /**
     * The request was cancelled.
     */
    GM_CANCELLED = 7,
    /**
     * The time of `gm_wait` is over, and the request still runs.
     */
    GM_TIMEOUT = 8,
    /**
     * The caller's buffer is too small. The count that it needs is set.
     */
    GM_BUFFER_TOO_SMALL = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gm_status gm_status;
#else
typedef uint32_t gm_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * The kind of an event.
 */
enum gm_event_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /**
     * A chunk of the reply, as JSON of the interface. All parts of a chunk follow as events of their own, so a program can
     * ignore this kind.
     */
    GM_EVENT_CHUNK = 1,
    /**
     * Text of the answer.
     */
    GM_EVENT_CONTENT = 2,
    /**
     * Text of the reasoning before the answer.
     */
    GM_EVENT_REASONING = 3,
    /**
     * A part of a tool call: an element of `delta.tool_calls`, as JSON.
     */
    GM_EVENT_TOOL_CALL = 4,
    /**
     * The end of a choice. The text is the reason, such as `stop` or `length`.
     */
    GM_EVENT_FINISH = 5,
    /**
     * The whole reply as JSON, if the request has `"stream": false`.
     */
    GM_EVENT_REPLY = 6,
    /**
     * The last event of a request. `status` is its result, and the text is the error message.
     */
    GM_EVENT_END = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum gm_event_kind gm_event_kind;
#else
typedef uint32_t gm_event_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A model that serves requests.
 */
typedef struct gm_engine gm_engine;

/**
 * A request that runs or has ended.
 */
typedef struct gm_request gm_request;

/**
 * Where a model is loaded and how much it can do at a time. Zero is the default of each field; start with
 * `GM_OPTIONS_INIT`.
 */
typedef struct gm_options {
    /**
     * `sizeof(gm_options)`.
     */
    size_t size;
    /**
     * `auto`, `cpu`, `cuda`, `cuda:N`, `metal` or `metal:N`; NULL for `auto`.
     */
    const char *device;
    /**
     * Threads of the CPU; 0 for one on each physical core.
     */
    uint32_t threads;
    /**
     * Tokens of one sequence; 0 for what the model was trained on, at most 32,768, and what fits into the memory.
     */
    uint32_t context;
    /**
     * Sequences at a time; 0 for 1. Further requests wait.
     */
    uint32_t sequences;
    /**
     * Requests that can wait; 0 for any number.
     */
    uint32_t queue;
    /**
     * Bits of a number in the KV cache: 16 or 8; 0 for 16.
     */
    uint32_t kv_bits;
    /**
     * Other than 0: the same result for the same request on a GPU, independent of other requests. A CPU always has it.
     */
    uint32_t deterministic;
    /**
     * Bytes of a CUDA device's memory that may be used; 0 for all that is free.
     */
    uint64_t gpu_memory;
    /**
     * Bytes of the host's memory that may be used; 0 for all that is free.
     */
    uint64_t cpu_memory;
} gm_options;

/**
 * An event of a request. Its pointers are valid until the callback returns.
 */
typedef struct gm_event {
    /**
     * The size of this struct in the library. Fields at its end can be missing in an older library.
     */
    size_t size;
    /**
     * What the text is.
     */
    gm_event_kind kind;
    /**
     * The result of the request, in `GM_EVENT_END`; else `GM_OK`.
     */
    gm_status status;
    /**
     * The choice that the text belongs to; 0 for a request with `n` of 1.
     */
    uint32_t choice;
    /**
     * UTF-8. A NUL follows the text, which can contain NULs itself.
     */
    const char *text;
    /**
     * Bytes of the text.
     */
    size_t length;
} gm_event;

/**
 * Receives the events of a request, one at a time, on a thread of the request. It may block: only its own request waits.
 * It may call all functions except `gm_wait` on its own request. It must not unwind.
 */
typedef void (*gm_event_fn)(void *user, const struct gm_event *event);

/**
 * Embeddings: `rows` vectors with `columns` numbers each, one after the other.
 */
typedef struct gm_vectors {
    /**
     * `sizeof(gm_vectors)`.
     */
    size_t size;
    /**
     * The numbers.
     */
    float *data;
    /**
     * The number of texts.
     */
    size_t rows;
    /**
     * The numbers of each vector.
     */
    size_t columns;
} gm_vectors;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the interface: compare it with `GM_ABI_VERSION` of the header.
 */
uint32_t gm_abi_version(void);

/**
 * The version of the library, such as `0.1.0`.
 */
const char *gm_version(void);

/**
 * The message of the last function of this thread that failed; empty if none has. It is valid until another function fails on
 * this thread.
 */
const char *gm_last_error(void);

/**
 * Loads a GGUF file, or a folder of Hugging Face or MLX, and starts an engine. It blocks until the model is loaded.
 * `options` can be NULL. On success `*engine` is a handle, which `gm_engine_free` frees.
 */
gm_status gm_engine_open(const char *path, const struct gm_options *options, struct gm_engine **engine);

/**
 * Frees the handle of an engine. Requests that run continue, and the last `gm_request_free` frees the model. NULL is
 * ignored.
 */
void gm_engine_free(struct gm_engine *engine);

/**
 * Starts a chat. `json` is the body of a request of `/v1/chat/completions`. Its reply is streamed, unless the body has
 * `"stream": false`. The function returns when the request is submitted. An error in the request is the result of the
 * request: `GM_EVENT_END` and `gm_wait` report it. On success `*request` is a handle, which `gm_request_free` frees.
 */
gm_status gm_chat(const struct gm_engine *engine,
                  const char *json,
                  gm_event_fn callback,
                  void *user,
                  struct gm_request **request);

/**
 * Starts the completion of a prompt. `json` is the body of a request of `/v1/completions`; otherwise the same as `gm_chat`.
 */
gm_status gm_complete(const struct gm_engine *engine,
                      const char *json,
                      gm_event_fn callback,
                      void *user,
                      struct gm_request **request);

/**
 * Cancels a request. It returns at once. If the request has not ended, its result is `GM_CANCELLED`.
 */
gm_status gm_cancel(const struct gm_request *request);

/**
 * Waits for the end of a request, and returns its result. If `milliseconds` is not negative, it waits at most this long,
 * and returns `GM_TIMEOUT` if the request still runs. The callback has then returned from `GM_EVENT_END`.
 */
gm_status gm_wait(const struct gm_request *request,
                  int milliseconds);

/**
 * Cancels a request if it has not ended, and frees its handle. After the function has returned, the callback is not
 * called. In the callback of this request, the current call is the last. NULL is ignored.
 */
void gm_request_free(struct gm_request *request);

/**
 * Sends `json` to a path of the server, such as `/v1/rerank` or `/v1/messages`, and waits for the whole reply. On success
 * `*reply` is the reply, which `gm_string_free` frees.
 */
gm_status gm_call(const struct gm_engine *engine,
                  const char *path,
                  const char *json,
                  char **reply);

/**
 * Frees a string of the library. NULL is ignored.
 */
void gm_string_free(char *string);

/**
 * Embeds texts. `json` is the body of a request of `/v1/embeddings`. `*vectors` is `GM_VECTORS_INIT` before, and on success
 * contains vectors, which `gm_vectors_free` frees.
 */
gm_status gm_embed(const struct gm_engine *engine,
                   const char *json,
                   struct gm_vectors *vectors);

/**
 * Frees the numbers of `gm_embed`. NULL, and vectors that have none, are ignored.
 */
void gm_vectors_free(struct gm_vectors *vectors);

/**
 * Tokenises a text of `length` bytes of UTF-8. If `is_prompt` is not 0, tokens that the model wants around a text are added,
 * and control tokens that are written in the text are recognised; use it only for text that is trusted. `*count` is the
 * number of places in `tokens`, and becomes the number of tokens. If it is too small, the result is
 * `GM_BUFFER_TOO_SMALL`, and `tokens` is unchanged.
 */
gm_status gm_tokenize(const struct gm_engine *engine,
                      const char *text,
                      size_t length,
                      int is_prompt,
                      uint32_t *tokens,
                      size_t *count);

/**
 * Writes the text of tokens as UTF-8, without a NUL. `*length` is the number of bytes in `text`, and becomes the number of
 * bytes of the text. If it is too small, the result is `GM_BUFFER_TOO_SMALL`, and `text` is unchanged.
 */
gm_status gm_detokenize(const struct gm_engine *engine,
                        const uint32_t *tokens,
                        size_t count,
                        char *text,
                        size_t *length);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* GRISTMILL_H */
