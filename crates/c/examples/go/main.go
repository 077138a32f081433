// Completes a text through libgristmill, by cgo.
//
//	CGO_CFLAGS="-I$PWD/../.." CGO_LDFLAGS="-L$PWD/../../../../target/debug -lgristmill" go run main.go MODEL.gguf TEXT
package main

/*
#include <stdint.h>
#include <stdlib.h>
#include <gristmill.h>

extern void goEvent(void *user, gm_event *event);

static void on_event(void *user, const gm_event *event) { goEvent(user, (gm_event *)event); }

static gm_status complete(const gm_engine *engine, const char *json, uintptr_t user, gm_request **request) {
	return gm_complete(engine, json, on_event, (void *)user, request);
}
*/
import "C"

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/cgo"
	"unsafe"
)

//export goEvent
func goEvent(user unsafe.Pointer, event *C.gm_event) {
	if event.kind == C.GM_EVENT_CONTENT {
		pieces := cgo.Handle(uintptr(user)).Value().(chan string)
		pieces <- C.GoStringN(event.text, C.int(event.length))
	} else if event.kind == C.GM_EVENT_END {
		close(cgo.Handle(uintptr(user)).Value().(chan string))
	}
}

// The message of a failed call is that of its thread, which a goroutine can leave.
func check(what string, call func() C.gm_status) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if call() != C.GM_OK {
		fmt.Fprintf(os.Stderr, "%s: %s\n", what, C.GoString(C.gm_last_error()))
		os.Exit(1)
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: main MODEL TEXT")
		os.Exit(1)
	}
	path := C.CString(os.Args[1])
	defer C.free(unsafe.Pointer(path))
	var engine *C.gm_engine
	check("open", func() C.gm_status { return C.gm_engine_open(path, nil, &engine) })
	defer C.gm_engine_free(engine)

	body, _ := json.Marshal(map[string]any{"prompt": os.Args[2], "max_tokens": 32, "temperature": 0})
	request := C.CString(string(body))
	defer C.free(unsafe.Pointer(request))
	pieces := make(chan string)
	user := cgo.NewHandle(pieces)
	defer user.Delete()
	var running *C.gm_request
	check("start", func() C.gm_status { return C.complete(engine, request, C.uintptr_t(user), &running) })
	defer C.gm_request_free(running)
	for piece := range pieces {
		fmt.Print(piece)
	}
	check("request", func() C.gm_status { return C.gm_wait(running, -1) })
	fmt.Println()
}
