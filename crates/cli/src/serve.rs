//! `serve`: an HTTP server for models. `models` loads them within the `capacity`, `keys` has those who may ask, `sockets` and `tls` where and
//! how it listens, `kv_events` what it publishes, `reload` reads files again.

mod capacity;
mod images;
mod keys;
mod kv_events;
pub(crate) mod models;
mod reload;
mod sockets;
mod tls;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gristmill_server::{Access, HostPattern, McpOrigin, OfferedModel, Options, Origin, Server};
use tokio::runtime::Runtime;

use crate::access_log::{AccessLogArgs, LogFile};
use crate::args::{ContextArg, DeviceArgs};
use crate::draft::DraftArgs;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::mmproj::MmprojArg;
use crate::settings::SettingArgs;
use crate::source::QuantizeArg;
use crate::template::TemplateArg;
use crate::verbosity::Verbosity;
use crate::{console, log, numbers, ranks};
pub(crate) use capacity::CapacityArgs;
pub(crate) use images::ImageArgs;
use keys::KeyArgs;
use kv_events::KvEventsArgs;
use models::{Loads, ModelsArg};
use sockets::SocketArgs;
use tls::Certificate;

/// Serve models over HTTP, as OpenAI (/v1/chat/completions, /v1/responses) and Anthropic (/v1/messages) do.
///
/// Clients of those services work with the base address http://127.0.0.1:8080/v1 (OpenAI) or http://127.0.0.1:8080
/// (Anthropic). /openapi.json describes all endpoints. After Ctrl-C or SIGTERM, running replies finish; a second signal
/// ends the server.
#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    models: ModelsArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    #[command(flatten)]
    mmproj: MmprojArg,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    sockets: SocketArgs,
    #[command(flatten)]
    capacity: CapacityArgs,
    /// The maximum number of connections; others wait until one ends.
    #[arg(
        long, value_name = "N", default_value_t = 1_000, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1),
        help_heading = "Limits"
    )]
    connections: usize,
    /// The largest body of a request in MiB. A request needs up to five times its body in memory.
    #[arg(
        long, value_name = "MIB", default_value_t = 32, allow_negative_numbers = true,
        value_parser = numbers::between(1, 1024),
        help_heading = "Limits"
    )]
    max_body: usize,
    /// The most memory for responses that requests of /v1/responses can continue by their id, in MiB. 0 keeps none. The
    /// oldest are dropped first.
    #[arg(
        long, value_name = "MIB", default_value_t = 64, allow_negative_numbers = true,
        value_parser = numbers::between(0, 65_536),
        help_heading = "Limits"
    )]
    stored_responses: usize,
    #[command(flatten)]
    keys: KeyArgs,
    /// Serve other machines without keys.
    #[arg(long, help_heading = "Address and access")]
    allow_unauthenticated: bool,
    /// Accept this host name in requests, in addition to localhost and IP addresses; *.example.org accepts every name
    /// that ends with .example.org. Can be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Address and access")]
    allow_host: Vec<HostPattern>,
    /// Let web pages of this origin use the server from a browser: http://localhost:3000, or * for every page. Can be
    /// repeated.
    #[arg(long, value_name = "ORIGIN", help_heading = "Address and access")]
    allow_origin: Vec<Origin>,
    /// Report metrics in /metrics by vLLM's names too, for dashboards and routers that use them.
    #[arg(long, value_name = "NAMES", help_heading = "Operation")]
    metrics_names: Option<MetricsNames>,
    #[command(flatten)]
    kv_events: KvEventsArgs,
    /// Seconds after SIGTERM in which the server still accepts requests, while /ready returns 503. In this time, load
    /// balancers notice the end and choose other servers.
    #[arg(
        long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true,
        value_parser = numbers::between(0, 3600),
        help_heading = "Operation"
    )]
    drain_delay: usize,
    /// Refuse requests with unknown fields, instead of listing the fields in the header x-gristmill-ignored.
    #[arg(long, help_heading = "Requests")]
    strict: bool,
    #[command(flatten)]
    template: TemplateArg,
    /// Use the field chat_template of requests, a chat template (Jinja) that replaces the model's. It can change
    /// everything that the model reads.
    #[arg(long, help_heading = "Requests")]
    allow_chat_template: bool,
    /// Serve no page at /.
    #[arg(long, help_heading = "Address and access")]
    no_page: bool,
    /// Let the page at / connect to MCP servers of this origin, such as http://localhost:3000, whose tools the model can
    /// call. Can be repeated.
    #[arg(long, value_name = "ORIGIN", help_heading = "Address and access")]
    allow_mcp: Vec<McpOrigin>,
    #[command(flatten)]
    access_log: AccessLogArgs,
    #[command(flatten)]
    draft: DraftArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    context: ContextArg,
    #[command(flatten)]
    settings: SettingArgs,
    #[command(flatten)]
    log: Verbosity,
}

/// How soon a signal is seen.
const SOON: Duration = Duration::from_millis(50);

/// Another server's names of figures.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum MetricsNames {
    Vllm,
}

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    log::install(args.access_log.log_format, args.log);
    args.settings.check()?;
    if ranks::is_other(args.device.ranks)? {
        return args.models.offered(&args.loads()?).map(drop);
    }
    let keys = args.keys.read()?;
    let (access_log, log_file) = args.access_log.open(args.log)?;
    let unprotected = keys.is_empty() && !args.allow_unauthenticated;
    args.sockets.check(unprotected)?;
    let runtime = runtime()?;
    let (sockets, certificate) = runtime.block_on(args.sockets.listen(unprotected))?;
    let reloads = args.keys.has_file() || certificate.is_some() || log_file.is_some();
    let hangup = reloads.then(reload::on_hangup).transpose()?;
    let interrupt = if reloads { Interrupt::watch_but_hangup()? } else { Interrupt::watch()? };
    let loading = {
        let _within = runtime.enter();
        sockets.answer_while_loading()
    };
    let loads = args.loads()?;
    let kv_events = runtime.block_on(args.kv_events.bind())?;
    let Some(models) = loaded(args.models.clone(), loads, &interrupt)? else {
        // No request runs that must finish. Dropping the sockets removes their files.
        return Ok(());
    };
    let access = Access { keys, hosts: args.allow_host.clone(), origins: args.allow_origin.clone() };
    let options = Options {
        access,
        strict: args.strict,
        allow_chat_template: args.allow_chat_template,
        page: !args.no_page,
        mcp_origins: args.allow_mcp.clone(),
        images: args.images.options()?,
        body_bytes: args.max_body << 20,
        response_bytes: args.stored_responses << 20,
        connections: args.connections,
        drain_delay: Duration::from_secs(args.drain_delay as u64),
        idle: args.models.idle.map(|seconds| Duration::from_secs(seconds as u64)),
        kv_events,
        vllm_metrics: matches!(args.metrics_names, Some(MetricsNames::Vllm)),
        log: access_log,
        ..Options::default()
    };
    drop(loading);
    let server = Server::new(sockets, models, options);
    let reloaded = Reloaded { hangup, certificate, log_file };
    runtime.block_on(serve(args, server, interrupt, reloaded))?;
    ranks::look()
}

impl ServeArgs {
    fn loads(&self) -> Result<Loads, Failure> {
        Ok(Loads {
            quantize: self.quantize,
            mmproj: self.mmproj.clone(),
            drafts: self.draft.clone(),
            device: self.device.clone(),
            capacity: self.capacity,
            image_limits: self.images.limits(),
            context: self.context.ctx,
            chat_template: self.template.read()?,
            settings: self.settings.clone(),
            log: self.log,
            held: Arc::default(),
        })
    }
}

/// What SIGHUP reads or opens again, besides the keys.
struct Reloaded {
    /// Set by SIGHUP, if there is anything.
    hangup: Option<Arc<AtomicBool>>,
    certificate: Option<Arc<Certificate>>,
    log_file: Option<LogFile>,
}

/// The models, of which some are loaded now. `None` after a signal, which does not wait for a load: its thread ends with
/// the process.
fn loaded(models: ModelsArg, loads: Loads, interrupt: &Interrupt) -> Result<Option<Vec<OfferedModel>>, Failure> {
    let (send, result) = mpsc::channel();
    let thread = thread::Builder::new().name("load".to_owned());
    thread
        .spawn(move || send.send(models.offered(&loads)))
        .map_err(|error| Failure::new(format!("cannot start a thread: {error}")))?;
    loop {
        match result.recv_timeout(SOON) {
            Ok(models) => return models.map(Some),
            Err(RecvTimeoutError::Timeout) if interrupt.signal().is_some() => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("loading the models panicked; report this with the lines above"));
            }
        }
    }
}

fn runtime() -> Result<Runtime, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).max_blocking_threads(readers()).enable_all();
    runtime.build().map_err(|error| Failure::new(format!("cannot start the threads of the server: {error}")))
}

async fn serve(
    args: &ServeArgs,
    server: Server,
    interrupt: Interrupt,
    Reloaded { hangup, certificate, log_file }: Reloaded,
) -> Result<(), Failure> {
    args.sockets.note(&server, !args.no_page);
    console::note(format_args!("ready; Ctrl-C ends the server"));
    let keys = server.keys();
    let reload = reload::reload(hangup, || {
        if args.keys.has_file() {
            args.keys.reload(&keys, args.log);
        }
        certificate.iter().for_each(|certificate| certificate.reload(args.log));
        log_file.iter().for_each(LogFile::reopen);
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

/// Ready after a signal, of which the next one ends the process, or when a rank of the model is lost.
async fn ended(interrupt: Interrupt, log: Verbosity) {
    while interrupt.signal().is_none() {
        if ranks::look().is_err() {
            return;
        }
        tokio::time::sleep(SOON).await;
    }
    log.info(format_args!("running replies end, then the server; a second signal ends it now"));
    drop(interrupt);
}
