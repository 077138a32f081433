/* Completes a text, or answers a question with the chat template, and prints the text while it is generated.
 *
 *     cc chat.c -I.. -L../../../target/debug -lgristmill -o chat
 *     LD_LIBRARY_PATH=../../../target/debug ./chat MODEL.gguf "Once upon a time" [TOKENS]
 *     ./chat MODEL.gguf --chat "What is a gristmill?" [TOKENS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gristmill.h"

static void print(void *user, const gm_event *event) {
    (void)user;
    if (event->kind == GM_EVENT_CONTENT) {
        fwrite(event->text, 1, event->length, stdout);
        fflush(stdout);
    }
}

/* A JSON string. The caller frees it. */
static char *quoted(const char *text) {
    char *json = malloc(6 * strlen(text) + 3), *at = json;
    if (json == NULL) {
        return NULL;
    }
    *at++ = '"';
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte < 0x20 || byte == '"' || byte == '\\') {
            at += sprintf(at, "\\u%04x", byte);
        } else {
            *at++ = (char)byte;
        }
    }
    strcpy(at, "\"");
    return json;
}

static char *body(const char *text, int is_chat, int tokens) {
    const char *format = is_chat ? "{\"messages\": [{\"role\": \"user\", \"content\": %s}], \"max_tokens\": %d}"
                                 : "{\"prompt\": %s, \"max_tokens\": %d}";
    char *string = quoted(text);
    size_t size = string == NULL ? 0 : strlen(string) + strlen(format) + 16;
    char *json = size == 0 ? NULL : malloc(size);
    if (json != NULL) {
        snprintf(json, size, format, string, tokens);
    }
    free(string);
    return json;
}

static int failed(const char *what) {
    fprintf(stderr, "%s: %s\n", what, gm_last_error());
    return EXIT_FAILURE;
}

int main(int count, char **words) {
    int is_chat = count > 2 && strcmp(words[2], "--chat") == 0;
    if (count < 3 + is_chat) {
        fprintf(stderr, "usage: chat MODEL [--chat] TEXT [TOKENS]\n");
        return EXIT_FAILURE;
    }
    if (gm_abi_version() != GM_ABI_VERSION) {
        fprintf(stderr, "libgristmill %s has another interface; compile again\n", gm_version());
        return EXIT_FAILURE;
    }
    const char *tokens = count > 3 + is_chat ? words[3 + is_chat] : "100";
    char *json = body(words[2 + is_chat], is_chat, atoi(tokens));
    if (json == NULL) {
        return EXIT_FAILURE;
    }
    gm_options options = GM_OPTIONS_INIT;
    options.context = 512;
    gm_engine *engine = NULL;
    gm_request *request = NULL;
    int code = EXIT_SUCCESS;
    if (gm_engine_open(words[1], &options, &engine) != GM_OK) {
        code = failed("open");
    } else if ((is_chat ? gm_chat : gm_complete)(engine, json, print, NULL, &request) != GM_OK) {
        code = failed("start");
    } else if (gm_wait(request, -1) != GM_OK) {
        code = failed("request");
    } else {
        printf("\n");
    }
    free(json);
    gm_request_free(request);
    gm_engine_free(engine);
    return code;
}
