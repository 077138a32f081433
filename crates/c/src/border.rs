//! The functions of the header. Its first comment states the rules of pointers and threads, which all `SAFETY` lines name as
//! what the caller passes.

#![allow(unsafe_code)]
#![expect(non_camel_case_types, reason = "they are the names of the header")]
#![allow(unreachable_pub, reason = "the header has public items only")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, size_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use crate::abi::{GM_ABI_VERSION, gm_event, gm_event_fn, gm_options, gm_status, gm_vectors};
use crate::engine::{Engine, Vectors};
use crate::event::Event;
use crate::failure::{Failure, last_message};
use crate::open::OpenOptions;
use crate::request::{Deliver, Request};

/// A model that serves requests.
pub struct gm_engine(Arc<Engine>);

/// A request that runs or has ended.
pub struct gm_request(Request);

/// The version of the interface: compare it with `GM_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn gm_abi_version() -> u32 {
    GM_ABI_VERSION
}

/// The version of the library, such as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn gm_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}

/// The message of the last function of this thread that failed; empty if none has. It is valid until another function fails on
/// this thread.
#[unsafe(no_mangle)]
pub extern "C" fn gm_last_error() -> *const c_char {
    last_message()
}

/// Loads a GGUF file, or a folder of Hugging Face or MLX, and starts an engine. It blocks until the model is loaded.
/// `options` can be NULL. On success `*engine` is a handle, which `gm_engine_free` frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_engine_open(
    path: *const c_char,
    options: *const gm_options,
    engine: *mut *mut gm_engine,
) -> gm_status {
    guarded(|| {
        // SAFETY: the caller passes NULL or valid pointers.
        let (path, options) = unsafe { (text("path", path)?, open_options(options)?) };
        let engine_at = not_null("engine", engine)?;
        let opened = Engine::open(path, &options)?;
        // SAFETY: it is not NULL, so the caller passes a place for a handle.
        unsafe { engine_at.write(Box::into_raw(Box::new(gm_engine(Arc::new(opened))))) };
        Ok(())
    })
}

/// Frees the handle of an engine. Requests that run continue, and the last `gm_request_free` frees the model. NULL is
/// ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_engine_free(engine: *mut gm_engine) {
    if !engine.is_null() {
        // SAFETY: the caller passes a handle of `gm_engine_open` that is not freed.
        let engine = unsafe { Box::from_raw(engine) };
        let _ = catch_unwind(AssertUnwindSafe(|| drop(engine)));
    }
}

/// Starts a chat. `json` is the body of a request of `/v1/chat/completions`. Its reply is streamed, unless the body has
/// `"stream": false`. The function returns when the request is submitted. An error in the request is the result of the
/// request: `GM_EVENT_END` and `gm_wait` report it. On success `*request` is a handle, which `gm_request_free` frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_chat(
    engine: *const gm_engine,
    json: *const c_char,
    callback: gm_event_fn,
    user: *mut c_void,
    request: *mut *mut gm_request,
) -> gm_status {
    // SAFETY: the caller passes what `start` needs.
    guarded(|| unsafe { start(engine, "/v1/chat/completions", json, callback, user, request) })
}

/// Starts the completion of a prompt. `json` is the body of a request of `/v1/completions`; otherwise the same as `gm_chat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_complete(
    engine: *const gm_engine,
    json: *const c_char,
    callback: gm_event_fn,
    user: *mut c_void,
    request: *mut *mut gm_request,
) -> gm_status {
    // SAFETY: the caller passes what `start` needs.
    guarded(|| unsafe { start(engine, "/v1/completions", json, callback, user, request) })
}

/// Cancels a request. It returns at once. If the request has not ended, its result is `GM_CANCELLED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_cancel(request: *const gm_request) -> gm_status {
    guarded(|| {
        // SAFETY: the caller passes NULL or a handle that is not freed.
        unsafe { handle("request", request)? }.0.cancel();
        Ok(())
    })
}

/// Waits for the end of a request, and returns its result. If `milliseconds` is not negative, it waits at most this long,
/// and returns `GM_TIMEOUT` if the request still runs. The callback has then returned from `GM_EVENT_END`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_wait(request: *const gm_request, milliseconds: c_int) -> gm_status {
    guarded(|| {
        let time = u64::try_from(milliseconds).ok().map(Duration::from_millis);
        // SAFETY: the caller passes NULL or a handle that is not freed.
        unsafe { handle("request", request)? }.0.wait(time)
    })
}

/// Cancels a request if it has not ended, and frees its handle. After the function has returned, the callback is not
/// called. In the callback of this request, the current call is the last. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_request_free(request: *mut gm_request) {
    if !request.is_null() {
        // SAFETY: the caller passes a handle of `start` that is not freed.
        let request = unsafe { Box::from_raw(request) };
        let _ = catch_unwind(AssertUnwindSafe(|| request.0.free()));
    }
}

/// Sends `json` to a path of the server, such as `/v1/rerank` or `/v1/messages`, and waits for the whole reply. On success
/// `*reply` is the reply, which `gm_string_free` frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_call(
    engine: *const gm_engine,
    path: *const c_char,
    json: *const c_char,
    reply: *mut *mut c_char,
) -> gm_status {
    guarded(|| {
        // SAFETY: the caller passes NULL or valid pointers.
        let (engine, path, json) = unsafe { (handle("engine", engine)?, text("path", path)?, text("json", json)?) };
        let reply_at = not_null("reply", reply)?;
        let mut bytes = engine.0.call(path, json)?;
        // JSON has no NUL.
        bytes.push(0);
        // SAFETY: it is not NULL, so the caller passes a place for a pointer.
        unsafe { reply_at.write(Box::into_raw(bytes.into_boxed_slice()).cast()) };
        Ok(())
    })
}

/// Frees a string of the library. NULL is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_string_free(string: *mut c_char) {
    if !string.is_null() {
        // SAFETY: the caller passes a string of `gm_call`: a boxed slice whose only NUL is its last byte.
        unsafe {
            let length = CStr::from_ptr(string).count_bytes() + 1;
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(string.cast::<u8>(), length)));
        }
    }
}

/// Embeds texts. `json` is the body of a request of `/v1/embeddings`. `*vectors` is `GM_VECTORS_INIT` before, and on success
/// contains vectors, which `gm_vectors_free` frees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_embed(
    engine: *const gm_engine,
    json: *const c_char,
    vectors: *mut gm_vectors,
) -> gm_status {
    guarded(|| {
        // SAFETY: the caller passes NULL or valid pointers.
        let (engine, json) = unsafe { (handle("engine", engine)?, text("json", json)?) };
        // SAFETY: the caller passes NULL or a struct.
        let vectors = unsafe { vectors.as_mut() }.ok_or_else(|| is_null("vectors"))?;
        let (size, known) = (vectors.size, size_of::<gm_vectors>());
        if size < known {
            let message = format!("vectors.size: is too small (found {size}, expected {known}); use GM_VECTORS_INIT");
            return Err(Failure::bad(message));
        }
        let Vectors { data, rows, columns } = engine.0.embed(json)?;
        // A product of the two is the length of the data, also without rows.
        let columns = if rows == 0 { 0 } else { columns };
        let data = Box::into_raw(data.into_boxed_slice()).cast::<f32>();
        *vectors = gm_vectors { size, data, rows, columns };
        Ok(())
    })
}

/// Frees the numbers of `gm_embed`. NULL, and vectors that have none, are ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_vectors_free(vectors: *mut gm_vectors) {
    // SAFETY: the caller passes NULL, a struct of `gm_embed`, or one without numbers.
    let Some(vectors) = (unsafe { vectors.as_mut() }) else { return };
    if !vectors.data.is_null() {
        let length = vectors.rows * vectors.columns;
        // SAFETY: `gm_embed` made a boxed slice of this length.
        drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(vectors.data, length)) });
    }
    *vectors = gm_vectors { data: ptr::null_mut(), rows: 0, columns: 0, ..*vectors };
}

/// Tokenises a text of `length` bytes of UTF-8. If `is_prompt` is not 0, tokens that the model wants around a text are added,
/// and control tokens that are written in the text are recognised; use it only for text that is trusted. `*count` is the
/// number of places in `tokens`, and becomes the number of tokens. If it is too small, the result is
/// `GM_BUFFER_TOO_SMALL`, and `tokens` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_tokenize(
    engine: *const gm_engine,
    text: *const c_char,
    length: usize,
    is_prompt: c_int,
    tokens: *mut u32,
    count: *mut usize,
) -> gm_status {
    guarded(|| {
        // SAFETY: the caller passes NULL or valid pointers, and `length` bytes.
        let (engine, text) = unsafe { (handle("engine", engine)?, slice("text", text.cast::<u8>(), length)?) };
        let text = std::str::from_utf8(text).map_err(|error| Failure::bad(format!("text: {error}; pass UTF-8")))?;
        let found = engine.0.tokenize(text, is_prompt != 0)?;
        // SAFETY: the caller passes a count, and as many places.
        unsafe { copy_out(("tokens", tokens), ("count", count), &found) }
    })
}

/// Writes the text of tokens as UTF-8, without a NUL. `*length` is the number of bytes in `text`, and becomes the number of
/// bytes of the text. If it is too small, the result is `GM_BUFFER_TOO_SMALL`, and `text` is unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gm_detokenize(
    engine: *const gm_engine,
    tokens: *const u32,
    count: usize,
    text: *mut c_char,
    length: *mut usize,
) -> gm_status {
    guarded(|| {
        // SAFETY: the caller passes NULL or valid pointers, and `count` tokens.
        let (engine, tokens) = unsafe { (handle("engine", engine)?, slice("tokens", tokens, count)?) };
        let found = engine.0.detokenize(tokens)?;
        // SAFETY: the caller passes a length, and as many bytes.
        unsafe { copy_out(("text", text.cast::<u8>()), ("length", length), found.as_bytes()) }
    })
}

/// Runs the body of a function. A panic becomes a status.
fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> gm_status {
    let result = catch_unwind(AssertUnwindSafe(body));
    let result =
        result.unwrap_or_else(|_| Err(Failure::internal("a bug in gristmill: the function panicked; report it")));
    match result {
        Ok(()) => gm_status::GM_OK,
        Err(failure) => {
            failure.keep();
            failure.status
        }
    }
}

/// The same pointer, which is not NULL.
fn not_null<T>(name: &str, pointer: *mut T) -> Result<*mut T, Failure> {
    if pointer.is_null() { Err(is_null(name)) } else { Ok(pointer) }
}

fn is_null(name: &str) -> Failure {
    Failure::bad(format!("{name}: is NULL; pass a pointer"))
}

/// # Safety
/// `pointer` is NULL, or valid for `'a`.
unsafe fn handle<'a, T>(name: &str, pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: as the caller promises.
    unsafe { pointer.as_ref() }.ok_or_else(|| is_null(name))
}

/// # Safety
/// `pointer` is NULL, or a string with a NUL that is valid for `'a`.
unsafe fn text<'a>(name: &str, pointer: *const c_char) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(is_null(name));
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { CStr::from_ptr(pointer) };
    bytes.to_str().map_err(|error| Failure::bad(format!("{name}: {error}; pass UTF-8")))
}

/// # Safety
/// `pointer` is NULL, or has `length` elements that are valid for `'a`.
unsafe fn slice<'a, T>(name: &str, pointer: *const T, length: usize) -> Result<&'a [T], Failure> {
    match (length, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(is_null(name)),
        // SAFETY: as the caller promises.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(pointer, length) }),
    }
}

/// Copies elements to the caller, and sets the count.
///
/// # Safety
/// `count` is NULL or valid, and `places` has as many elements as it says.
unsafe fn copy_out<T: Copy>(
    (name, places): (&str, *mut T),
    (count_name, count): (&str, *mut usize),
    found: &[T],
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    let count = unsafe { count.as_mut() }.ok_or_else(|| is_null(count_name))?;
    let most = std::mem::replace(count, found.len());
    if most < found.len() {
        let message = format!("{count_name}: is too small (found {most}, expected {}); pass more places", found.len());
        return Err(Failure::new(gm_status::GM_BUFFER_TOO_SMALL, message));
    }
    if !found.is_empty() {
        let places = not_null(name, places)?;
        // SAFETY: the caller has at least as many places, and they are not ours.
        unsafe { ptr::copy_nonoverlapping(found.as_ptr(), places, found.len()) };
    }
    Ok(())
}

/// Reads options of any size: fields that the caller's version lacks are zero, and unknown fields must be zero.
///
/// # Safety
/// `options` is NULL, or a struct of the size that is in its first field.
unsafe fn open_options(options: *const gm_options) -> Result<OpenOptions, Failure> {
    if options.is_null() {
        return Ok(OpenOptions::default());
    }
    // SAFETY: every version of the struct starts with its size.
    let size = unsafe { options.cast::<usize>().read() };
    let (least, known) = (size_of::<usize>(), size_of::<gm_options>());
    // Another number is no size: the field was not set.
    if !(least..=4096).contains(&size) {
        let message =
            format!("options.size: is no size of gm_options (found {size}, expected {known}); use GM_OPTIONS_INIT");
        return Err(Failure::bad(message));
    }
    // SAFETY: the struct has this size.
    let unknown = unsafe { slice("options", options.cast::<u8>().add(known.min(size)), size.saturating_sub(known))? };
    if unknown.iter().any(|&byte| byte != 0) {
        return Err(Failure::bad(format!(
            "options: has fields that version {} lacks; update libgristmill",
            env!("CARGO_PKG_VERSION")
        )));
    }
    let mut read = MaybeUninit::<gm_options>::zeroed();
    // SAFETY: both have these bytes, and any bits are a value of the fields; zero is one for those that are missing.
    let read = unsafe {
        ptr::copy_nonoverlapping(options.cast::<u8>(), read.as_mut_ptr().cast::<u8>(), size.min(known));
        read.assume_init()
    };
    let gm_options {
        device, threads, context, sequences, queue, kv_bits, deterministic, gpu_memory, cpu_memory, ..
    } = read;
    let device = match device.is_null() {
        true => None,
        // SAFETY: the caller passes a string.
        false => Some(unsafe { text("options.device", device)? }.to_owned()),
    };
    let is_deterministic = deterministic != 0;
    Ok(OpenOptions { device, threads, context, sequences, queue, kv_bits, is_deterministic, gpu_memory, cpu_memory })
}

/// # Safety
/// The pointers are NULL or valid, and the callback can be called on another thread with `user` until the request is freed.
unsafe fn start(
    engine: *const gm_engine,
    path: &'static str,
    json: *const c_char,
    callback: gm_event_fn,
    user: *mut c_void,
    request: *mut *mut gm_request,
) -> Result<(), Failure> {
    // SAFETY: as the caller promises.
    let (engine, json) = unsafe { (handle("engine", engine)?, text("json", json)?) };
    let request_at = not_null("request", request)?;
    let callback = callback.ok_or_else(|| is_null("callback"))?;
    // SAFETY: as the caller promises.
    let deliver = unsafe { deliver(callback, user) };
    let started = Request::start(engine.0.clone(), path, json, deliver)?;
    // SAFETY: it is not NULL, so the caller passes a place for a handle.
    unsafe { request_at.write(Box::into_raw(Box::new(gm_request(started)))) };
    Ok(())
}

/// The pointer that a callback gets back.
struct User(*mut c_void);

// SAFETY: the header says that the callback is called on another thread, with this pointer.
unsafe impl Send for User {}

impl User {
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// # Safety
/// The callback can be called on another thread with `user` until the request is freed.
unsafe fn deliver(callback: unsafe extern "C" fn(*mut c_void, *const gm_event), user: *mut c_void) -> Deliver {
    let user = User(user);
    Box::new(move |&Event { kind, choice, ref text }, status| {
        let mut bytes = text.clone().into_bytes();
        bytes.push(0);
        let text = bytes.as_ptr().cast();
        let event = gm_event { size: size_of::<gm_event>(), kind, status, choice, text, length: bytes.len() - 1 };
        // SAFETY: as the caller promises; the event and its text are there until the callback has returned.
        unsafe { callback(user.pointer(), &raw const event) };
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> &'static str {
        // SAFETY: it is a string, which stays until another failure of this thread.
        unsafe { CStr::from_ptr(gm_last_error()) }.to_str().unwrap()
    }

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(guarded(|| panic!("on purpose")), gm_status::GM_INTERNAL);
        assert!(error().contains("panicked"), "{}", error());
    }

    #[test]
    fn options_of_other_versions_are_read() {
        let known = size_of::<gm_options>();
        // A struct of a later version with one more field, which is unset.
        let mut later = [0_u64; 32];
        later[0] = (known + 8) as u64;
        later[2] = 3;
        // SAFETY: the array has the size that is in its first field.
        let read = |options: &[u64; 32]| unsafe { open_options(options.as_ptr().cast()) };
        assert_eq!(read(&later).unwrap().threads, 3);
        later[known / 8] = 1;
        assert!(read(&later).unwrap_err().message.contains("fields that version"));
        // A struct of an earlier version, with only the size and the device.
        later[0] = 16;
        assert_eq!(read(&later).unwrap().threads, 0);
        later[0] = 0;
        assert!(read(&later).unwrap_err().message.contains("GM_OPTIONS_INIT"));
    }

    #[test]
    fn null_and_wrong_arguments_are_refused_by_name() {
        let mut engine = ptr::null_mut();
        let name = c"/nowhere/model.gguf".as_ptr();
        // SAFETY: all pointers are NULL or valid.
        unsafe {
            assert_eq!(gm_engine_open(ptr::null(), ptr::null(), &raw mut engine), gm_status::GM_BAD_REQUEST);
            assert!(error().starts_with("path: "), "{}", error());
            assert_eq!(gm_engine_open(name, ptr::null(), ptr::null_mut()), gm_status::GM_BAD_REQUEST);
            assert!(error().starts_with("engine: "), "{}", error());
            assert_eq!(gm_engine_open(c"\xff".as_ptr(), ptr::null(), &raw mut engine), gm_status::GM_BAD_REQUEST);
            assert!(error().contains("UTF-8"), "{}", error());
            assert_eq!(gm_engine_open(name, ptr::null(), &raw mut engine), gm_status::GM_FILE);
            assert!(error().contains("/nowhere/model.gguf"), "{}", error());
            assert!(engine.is_null());
            assert_eq!(gm_cancel(ptr::null()), gm_status::GM_BAD_REQUEST);
            gm_engine_free(ptr::null_mut());
            gm_request_free(ptr::null_mut());
            gm_string_free(ptr::null_mut());
            gm_vectors_free(ptr::null_mut());
        }
    }
}
