/* What the header promises, against the built-in model. `scripts/c/check.sh` runs it with AddressSanitizer,
 * and under valgrind.
 *
 *     api MODEL
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gristmill.h"

#define CHECK(condition)                                                                                              \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, gm_last_error());          \
            exit(EXIT_FAILURE);                                                                                       \
        }                                                                                                             \
    } while (0)

/* The events of a request. */
typedef struct {
    char text[4096];
    size_t length;
    int chunks, finished, ends, replies;
    gm_status status;
    /* Frees it in its own callback, at the first content. */
    gm_request **free_at_content;
    int after_free;
    gm_status wait_in_callback;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} Events;

static void event(void *user, const gm_event *event) {
    Events *events = user;
    pthread_mutex_lock(&events->lock);
    CHECK(event->size >= sizeof(gm_event));
    CHECK(event->text[event->length] == '\0');
    events->after_free += events->free_at_content != NULL && *events->free_at_content == NULL;
    switch (event->kind) {
    case GM_EVENT_CHUNK:
        events->chunks++;
        break;
    case GM_EVENT_CONTENT:
        CHECK(events->length + event->length < sizeof events->text);
        memcpy(events->text + events->length, event->text, event->length);
        events->length += event->length;
        if (events->free_at_content != NULL && *events->free_at_content != NULL) {
            events->wait_in_callback = gm_wait(*events->free_at_content, -1);
            gm_request_free(*events->free_at_content);
            *events->free_at_content = NULL;
        }
        break;
    case GM_EVENT_FINISH:
        CHECK(strcmp(event->text, "length") == 0 || strcmp(event->text, "stop") == 0);
        events->finished++;
        break;
    case GM_EVENT_REPLY:
        events->replies++;
        CHECK(strstr(event->text, "\"choices\"") != NULL);
        break;
    case GM_EVENT_END:
        events->ends++;
        events->status = event->status;
        break;
    default:
        break;
    }
    pthread_cond_broadcast(&events->changed);
    pthread_mutex_unlock(&events->lock);
}

static Events *new_events(void) {
    Events *events = calloc(1, sizeof *events);
    CHECK(events != NULL);
    pthread_mutex_init(&events->lock, NULL);
    pthread_cond_init(&events->changed, NULL);
    return events;
}

static void free_events(Events *events) {
    pthread_mutex_destroy(&events->lock);
    pthread_cond_destroy(&events->changed);
    free(events);
}

static void wait_for_content(Events *events) {
    pthread_mutex_lock(&events->lock);
    while (events->length == 0 && events->ends == 0) {
        pthread_cond_wait(&events->changed, &events->lock);
    }
    pthread_mutex_unlock(&events->lock);
}

static const char *STORY = "{\"prompt\": \"Once upon a time\", \"max_tokens\": 8, \"temperature\": 0, \"ignore_eos\": true}";
static const char *LONG = "{\"prompt\": \"Once upon a time\", \"max_tokens\": 400, \"temperature\": 0, \"ignore_eos\": true}";

static void completes(gm_engine *engine) {
    Events *events = new_events();
    gm_request *request = NULL;
    CHECK(gm_complete(engine, STORY, event, events, &request) == GM_OK);
    CHECK(gm_wait(request, -1) == GM_OK);
    CHECK(gm_wait(request, 0) == GM_OK);
    CHECK(events->length > 0 && events->chunks > 0 && events->finished == 1 && events->ends == 1);
    CHECK(events->status == GM_OK && events->replies == 0);
    gm_request_free(request);

    /* The same request, as one reply. */
    Events *whole = new_events();
    CHECK(gm_complete(engine, "{\"prompt\": \"Once\", \"max_tokens\": 2, \"stream\": false}", event, whole, &request) == GM_OK);
    CHECK(gm_wait(request, -1) == GM_OK);
    CHECK(whole->replies == 1 && whole->chunks == 0 && whole->ends == 1);
    gm_request_free(request);
    free_events(whole);
    free_events(events);
}

static void reports_errors(gm_engine *engine) {
    Events *events = new_events();
    gm_request *request = NULL;
    CHECK(gm_complete(engine, "{\"prompt\": \"Once\", \"temperature\": -1}", event, events, &request) == GM_OK);
    CHECK(gm_wait(request, -1) == GM_BAD_REQUEST);
    CHECK(strstr(gm_last_error(), "temperature") != NULL);
    CHECK(events->ends == 1 && events->status == GM_BAD_REQUEST && events->chunks == 0);
    gm_request_free(request);
    CHECK(gm_complete(engine, "{", event, events, &request) == GM_OK);
    CHECK(gm_wait(request, -1) == GM_BAD_REQUEST);
    gm_request_free(request);
    request = NULL;
    CHECK(gm_complete(engine, NULL, event, events, &request) == GM_BAD_REQUEST && request == NULL);
    CHECK(strstr(gm_last_error(), "json") != NULL);
    CHECK(gm_complete(engine, STORY, NULL, NULL, &request) == GM_BAD_REQUEST && request == NULL);
    CHECK(gm_chat(NULL, STORY, event, events, &request) == GM_BAD_REQUEST);
    free_events(events);
}

static void cancels(gm_engine *engine) {
    Events *events = new_events();
    gm_request *request = NULL;
    CHECK(gm_complete(engine, LONG, event, events, &request) == GM_OK);
    CHECK(gm_wait(request, 0) == GM_TIMEOUT);
    wait_for_content(events);
    CHECK(gm_cancel(request) == GM_OK);
    CHECK(gm_wait(request, -1) == GM_CANCELLED);
    CHECK(events->ends == 1 && events->status == GM_CANCELLED && events->finished == 0);
    CHECK(gm_cancel(request) == GM_OK);
    gm_request_free(request);
    free_events(events);
}

/* A callback after the free would use freed memory, which the sanitizers report. */
static void calls_nothing_after_free(gm_engine *engine) {
    for (int round = 0; round < 3; round++) {
        Events *events = new_events();
        gm_request *request = NULL;
        CHECK(gm_complete(engine, LONG, event, events, &request) == GM_OK);
        if (round > 0) {
            wait_for_content(events);
        }
        gm_request_free(request);
        CHECK(events->ends == 0 && events->finished == 0);
        free_events(events);
    }
}

static void can_be_freed_in_its_callback(gm_engine *engine) {
    Events *events = new_events();
    gm_request *request = NULL;
    pthread_mutex_lock(&events->lock);
    events->free_at_content = &request;
    CHECK(gm_complete(engine, LONG, event, events, &request) == GM_OK);
    while (request != NULL) {
        pthread_cond_wait(&events->changed, &events->lock);
    }
    pthread_mutex_unlock(&events->lock);
    CHECK(events->wait_in_callback == GM_BAD_REQUEST);
    /* The next request ends after the freed one has left its only sequence. */
    completes(engine);
    CHECK(events->after_free == 0 && events->ends == 0);
    free_events(events);
}

static void tokenizes(gm_engine *engine) {
    const char *text = "Once upon a time";
    size_t count = 0;
    CHECK(gm_tokenize(engine, text, strlen(text), 0, NULL, &count) == GM_BUFFER_TOO_SMALL);
    CHECK(count > 0 && count < 64);
    uint32_t tokens[64];
    size_t places = 64;
    CHECK(gm_tokenize(engine, text, strlen(text), 0, tokens, &places) == GM_OK && places == count);
    char out[64];
    size_t length = 3;
    CHECK(gm_detokenize(engine, tokens, count, out, &length) == GM_BUFFER_TOO_SMALL && length == strlen(text));
    CHECK(gm_detokenize(engine, tokens, count, out, &length) == GM_OK && memcmp(out, text, length) == 0);
    uint32_t unknown = UINT32_MAX;
    CHECK(gm_detokenize(engine, &unknown, 1, out, &length) == GM_BAD_REQUEST);
    CHECK(gm_tokenize(engine, "\xff", 1, 0, tokens, &places) == GM_BAD_REQUEST);
}

static void embeds_and_calls(gm_engine *engine) {
    gm_vectors vectors = GM_VECTORS_INIT;
    CHECK(gm_embed(engine, "{\"input\": [\"a mill\", \"a river\"]}", &vectors) == GM_OK);
    CHECK(vectors.rows == 2 && vectors.columns > 1);
    double sum = 0;
    for (size_t i = 0; i < vectors.columns; i++) {
        sum += vectors.data[i] * vectors.data[i];
    }
    CHECK(fabs(sum - 1) < 1e-3);
    gm_vectors_free(&vectors);
    CHECK(vectors.data == NULL && vectors.rows == 0);
    gm_vectors_free(&vectors);
    gm_vectors unset = {0, NULL, 0, 0};
    CHECK(gm_embed(engine, "{\"input\": \"a\"}", &unset) == GM_BAD_REQUEST);
    char *reply = NULL;
    CHECK(gm_call(engine, "/tokenize", "{\"prompt\": \"a mill\"}", &reply) == GM_OK);
    CHECK(strstr(reply, "\"tokens\"") != NULL);
    gm_string_free(reply);
    CHECK(gm_call(engine, "/nowhere", "{}", &reply) == GM_BAD_REQUEST);
    CHECK(gm_call(engine, "no path", "{}", &reply) == GM_BAD_REQUEST);
}

static void *complete_one(void *engine) {
    Events *events = new_events();
    gm_request *request = NULL;
    CHECK(gm_complete(engine, STORY, event, events, &request) == GM_OK);
    CHECK(gm_wait(request, -1) == GM_OK);
    gm_request_free(request);
    return events;
}

static void serves_threads(gm_engine *engine) {
    pthread_t threads[4];
    Events *events[4];
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, complete_one, engine) == 0);
    }
    for (int i = 0; i < 4; i++) {
        void *found;
        pthread_join(threads[i], &found);
        events[i] = found;
        CHECK(strcmp(events[i]->text, events[0]->text) == 0);
    }
    for (int i = 0; i < 4; i++) {
        free_events(events[i]);
    }
}

/* A request keeps its engine. */
static void outlives_the_handle(gm_engine *engine) {
    Events *events = new_events();
    gm_request *request = NULL;
    CHECK(gm_complete(engine, STORY, event, events, &request) == GM_OK);
    gm_engine_free(engine);
    CHECK(gm_wait(request, -1) == GM_OK && events->length > 0);
    gm_request_free(request);
    free_events(events);
}

int main(int count, char **words) {
    CHECK(count == 2);
    CHECK(gm_abi_version() == GM_ABI_VERSION && strlen(gm_version()) > 0);
    gm_engine *engine = NULL;
    CHECK(gm_engine_open("/nowhere.gguf", NULL, &engine) == GM_FILE && engine == NULL);
    CHECK(strstr(gm_last_error(), "/nowhere.gguf") != NULL);
    gm_options options = GM_OPTIONS_INIT;
    options.device = "abacus";
    CHECK(gm_engine_open(words[1], &options, &engine) == GM_BAD_REQUEST && strstr(gm_last_error(), "abacus") != NULL);
    options.device = "cpu";
    options.threads = 2;
    options.context = 512;
    options.kv_bits = 7;
    CHECK(gm_engine_open(words[1], &options, &engine) == GM_BAD_REQUEST && strstr(gm_last_error(), "kv_bits") != NULL);
    options.kv_bits = 0;
    CHECK(gm_engine_open(words[1], &options, &engine) == GM_OK);
    completes(engine);
    reports_errors(engine);
    cancels(engine);
    calls_nothing_after_free(engine);
    can_be_freed_in_its_callback(engine);
    tokenizes(engine);
    embeds_and_calls(engine);
    serves_threads(engine);
    outlives_the_handle(engine);
    puts("the C interface holds");
    return EXIT_SUCCESS;
}
