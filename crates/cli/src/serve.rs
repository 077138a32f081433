//! `serve`: an HTTP server for one model. `keys` has those who may ask, `sockets` and `tls`
//! where and how it listens, `hangup` reads files again.

mod hangup;
mod keys;
mod sockets;
mod tls;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gristmill_engine::Limits;
use gristmill_files::gguf::GgufFile;
use gristmill_server::{Access, HostPattern, Options, Origin, Server};
use tokio::runtime::Runtime;

use crate::access_log::AccessLogArgs;
use crate::args::{ContextArg, DeviceArgs, Verbosity};
use crate::draft::{DraftArgs, Without};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::source::{ModelArg, QuantizeArg};
use crate::template::{self, TemplateArg};
use crate::{console, load, log, numbers, recommended};
use keys::KeyArgs;
use sockets::SocketArgs;
use tls::Certificate;

/// Serve a model over HTTP, as OpenAI (/v1/chat/completions, /v1/responses) and Anthropic (/v1/messages) do.
///
/// Clients of those services work with the base address http://127.0.0.1:8080/v1 (OpenAI) or http://127.0.0.1:8080
/// (Anthropic). /openapi.json describes all endpoints. After Ctrl-C or SIGTERM, running replies finish; a second signal
/// ends the server.
#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    sockets: SocketArgs,
    /// The number of replies that are generated at the same time.
    #[arg(
        long, value_name = "N", default_value_t = 8, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1)
    )]
    parallel: usize,
    /// Tokens in the KV cache, for all replies together; at least --ctx. If the cache is full, the newest reply is
    /// preempted and computed again later [default: --parallel times --ctx].
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1))]
    kv_tokens: Option<usize>,
    /// The maximum number of waiting requests of each key; more are refused with status 429.
    #[arg(
        long, value_name = "N", default_value_t = 256, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(0)
    )]
    queue: usize,
    /// The maximum number of connections; others wait until one ends.
    #[arg(
        long, value_name = "N", default_value_t = 1_000, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1)
    )]
    connections: usize,
    /// The largest body of a request in MiB. A request needs up to five times its body in memory.
    #[arg(
        long, value_name = "MIB", default_value_t = 8, allow_negative_numbers = true,
        value_parser = numbers::between(1, 1024)
    )]
    max_body: usize,
    /// The maximum number of tokens in a step; prompts are split into steps [default: 512; on CUDA 2048, or less if its
    /// memory is short].
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1))]
    batch: Option<usize>,
    /// The name of the model in replies [default: the name of its file].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Another name that requests can use for the model; in claude-*, the * matches any characters. Can be repeated.
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Serve other machines without keys.
    #[arg(long)]
    allow_unauthenticated: bool,
    /// Accept this host name in requests, in addition to localhost and IP addresses; *.example.org accepts every name
    /// that ends with .example.org. Can be repeated.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<HostPattern>,
    /// Let web pages of this origin use the server from a browser: http://localhost:3000, or * for every page. Can be
    /// repeated.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,
    /// Report metrics in /metrics by vLLM's names too, for dashboards and routers that use them.
    #[arg(long, value_name = "NAMES")]
    metrics_names: Option<MetricsNames>,
    /// Seconds after SIGTERM in which the server still accepts requests, while /ready returns 503. In this time, load
    /// balancers notice the end and choose other servers.
    #[arg(
        long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true,
        value_parser = numbers::between(0, 3600)
    )]
    drain_delay: usize,
    /// Count the tokens of each expert, for /metrics. A CPU always counts. A GPU then copies the choices of the routers
    /// to the host after each step.
    #[arg(long)]
    count_experts: bool,
    /// Refuse requests with unknown fields, instead of listing the fields in the header x-gristmill-ignored.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    template: TemplateArg,
    /// Use the field chat_template of requests, a chat template (Jinja) that replaces the model's. It can change
    /// everything that the model reads.
    #[arg(long)]
    allow_chat_template: bool,
    /// Serve no page at /.
    #[arg(long)]
    no_page: bool,
    #[command(flatten)]
    access_log: AccessLogArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    log: Verbosity,
}

/// Another server's names of figures.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MetricsNames {
    Vllm,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    log::install(args.access_log.log_format, args.log);
    let keys = args.keys.read()?;
    let access_log = args.access_log.open(args.log)?;
    let unprotected = keys.is_empty() && !args.allow_unauthenticated;
    args.sockets.check(unprotected)?;
    let runtime = runtime()?;
    let (sockets, certificate) = runtime.block_on(args.sockets.listen(unprotected))?;
    let reloads = args.keys.has_file() || certificate.is_some();
    let hangup = reloads.then(hangup::on_hangup).transpose()?;
    let loading = {
        let _within = runtime.enter();
        sockets.answer_while_loading()
    };
    let chat_template = args.template.read()?;
    let source = args.quantize.of(args.model.source()?)?;
    let drafts = args.draft.or(Without::Off);
    let device = drafts.on(&args.device);
    let limits = Limits {
        context: args.context.ctx,
        sequences: args.parallel,
        kv_tokens: args.kv_tokens,
        batch_tokens: args.batch.unwrap_or(0).max(args.parallel),
        output_rows: drafts.rows(args.parallel),
        kv_format: args.device.kv.into(),
        ..Limits::default()
    };
    let (model, limits) = match args.batch {
        Some(_) => (load::model(source, &device, limits, &args.log)?, limits),
        None => load::with_usual_batch(source, &device, limits, &args.log)?,
    };
    let sampling = recommended::sampling(source, model.file(), &args.log);
    let name = args.name.clone().unwrap_or_else(|| name(model.file()));
    let engine = load::start(model, drafts, limits, &args.device, &args.log)?.with_queue(args.queue);
    let engine = template::replaced(engine, chat_template.as_deref());
    template::report(&engine, &args.log, Verbosity::info);
    if args.count_experts {
        engine.count_experts(true);
    }
    let access = Access { keys, hosts: args.allow_host.clone(), origins: args.allow_origin.clone() };
    let (aliases, strict, draft) = (args.alias.clone(), args.strict, drafts.most(engine.model()));
    let (connections, body_bytes, page) = (args.connections, args.max_body << 20, !args.no_page);
    let allow_chat_template = args.allow_chat_template;
    let drain_delay = Duration::from_secs(args.drain_delay as u64);
    let basics = Options { aliases, access, strict, page, allow_chat_template, ..Options::new(name) };
    let vllm_metrics = matches!(args.metrics_names, Some(MetricsNames::Vllm));
    let basics = Options { vllm_metrics, ..basics };
    let options = Options { sampling, draft, connections, body_bytes, drain_delay, log: access_log, ..basics };
    drop(loading);
    let server = Server::new(sockets, engine, options);
    runtime.block_on(serve(args, server, hangup, certificate))
}

fn runtime() -> Result<Runtime, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).max_blocking_threads(readers()).enable_all();
    runtime.build().map_err(|error| Failure::new(format!("cannot start the threads of the server: {error}")))
}

async fn serve(
    args: &ServeArgs,
    server: Server,
    hangup: Option<Arc<AtomicBool>>,
    certificate: Option<Arc<Certificate>>,
) -> Result<(), Failure> {
    let interrupt = if hangup.is_some() { Interrupt::watch_but_hangup()? } else { Interrupt::watch()? };
    args.sockets.note(&server, !args.no_page);
    console::note(format_args!("ready; Ctrl-C ends the server"));
    let keys = server.keys();
    let reload = hangup::reload(hangup, || {
        if args.keys.has_file() {
            args.keys.reload(&keys, args.log);
        }
        certificate.iter().for_each(|certificate| certificate.reload(args.log));
    });
    tokio::select! {
        () = server.run(ended(interrupt, args.log)) => {}
        () = reload => {}
    }
    Ok(())
}

/// Threads that read long bodies and tokenise. More of them than cores would be no faster, and the allocator keeps
/// memory for each that has freed a long body.
fn readers() -> usize {
    thread::available_parallelism().map_or(2, usize::from).max(2)
}

/// Ready after a signal. The next one ends the process.
async fn ended(interrupt: Interrupt, log: Verbosity) {
    while interrupt.signal().is_none() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    log.info(format_args!("running replies end, then the server; a second signal ends it now"));
    drop(interrupt);
}

/// The name of the file without folder and ending, or of the folder that is the model; that of the built-in model, which has no file.
fn name(file: &GgufFile) -> String {
    // The files of a folder have the same names in every folder.
    let of_folder = file.metadata().optional::<&str>("general.name").ok().flatten().filter(|_| !file.is_gguf());
    if let Some(name) = of_folder {
        return name.to_owned();
    }
    match file.paths().next() {
        Some(path) => path.file_stem().map_or_else(|| "model".into(), |name| name.to_string_lossy().into_owned()),
        None => "gristmill-stories".to_owned(),
    }
}
