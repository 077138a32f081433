//! `serve`: an HTTP server for one model. `keys` has those who may ask.

mod keys;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};
use gristmill_engine::Limits;
use gristmill_files::gguf::GgufFile;
use gristmill_server::{Access, HostPattern, Key, Options, Origin, Server, Sockets};
use tokio::runtime::Runtime;

use crate::access_log::AccessLogArgs;
use crate::args::{ContextArg, DeviceArgs, DraftArgs, Verbosity};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::source::{ModelArg, QuantizeArg};
use crate::template::{self, TemplateArg};
use crate::{console, load, log, numbers, recommended};
use keys::KeyArgs;

/// Serve a model over HTTP, as OpenAI (/v1/chat/completions, /v1/responses) and Anthropic (/v1/messages) do.
///
/// Programs for those services work with http://127.0.0.1:8080/v1 (OpenAI) or http://127.0.0.1:8080 (Anthropic) as the
/// base address. All interfaces: /openapi.json. Ctrl-C or SIGTERM lets running replies end; a second one ends the
/// server.
#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    quantize: QuantizeArg,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    host: String,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,
    /// Replies that are generated at a time.
    #[arg(
        long, value_name = "N", default_value_t = 8, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1)
    )]
    parallel: usize,
    /// Tokens that the KV cache holds, of all replies together; at least --ctx. With fewer than the replies need, the
    /// one that began last waits and is computed again later [default: --parallel times --ctx].
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1))]
    kv_tokens: Option<usize>,
    /// Requests of each key that may wait; more are refused with status 429.
    #[arg(
        long, value_name = "N", default_value_t = 256, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(0)
    )]
    queue: usize,
    /// Connections at a time; others wait until one ends.
    #[arg(
        long, value_name = "N", default_value_t = 1_000, allow_negative_numbers = true,
        value_parser = numbers::at_least::<usize>(1)
    )]
    connections: usize,
    /// The largest body of a request in MiB; a request takes up to five times its body in memory.
    #[arg(
        long, value_name = "MIB", default_value_t = 8, allow_negative_numbers = true,
        value_parser = numbers::between(1, 1024)
    )]
    max_body: usize,
    /// Tokens of one step, which prompts are cut into [default: 512; on CUDA 2048, less where its memory is short].
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true, value_parser = numbers::at_least::<usize>(1))]
    batch: Option<usize>,
    /// The name of the model in replies [default: the name of its file].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Another name by which requests may ask for the model; in claude-*, the * stands for any characters. May be given
    /// several times.
    #[arg(long, value_name = "NAME")]
    alias: Vec<String>,
    #[command(flatten)]
    keys: KeyArgs,
    /// Serve other machines although there are no keys.
    #[arg(long)]
    allow_unauthenticated: bool,
    /// Accept this name of the machine in requests, beside localhost and IP addresses; *.example.org accepts every name
    /// that ends with .example.org. May be given several times.
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<HostPattern>,
    /// Let web pages of this origin use the server from a browser: http://localhost:3000, or * for every page. May be
    /// given several times.
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<Origin>,
    /// Listen on this address too, for /metrics, /health and /ready alone, without a key.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<String>,
    /// Report figures in /metrics by these names too: those of vLLM, for dashboards and routers that know them.
    #[arg(long, value_name = "NAMES")]
    metrics_names: Option<MetricsNames>,
    /// Seconds in which the server goes on taking requests after SIGTERM, while /ready is 503. Load balancers need some
    /// to send requests elsewhere.
    #[arg(
        long, value_name = "SECONDS", default_value_t = 0, allow_negative_numbers = true,
        value_parser = numbers::between(0, 3600)
    )]
    drain_delay: usize,
    /// Count the tokens that each expert gets, for /metrics. A CPU always does; on a GPU the choices of the
    /// routers are then copied to the host after each step.
    #[arg(long)]
    count_experts: bool,
    /// Refuse requests with unknown fields, instead of naming them in the header x-gristmill-ignored.
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    template: TemplateArg,
    /// Obey the field chat_template of requests, a chat template (Jinja) in place of the model's. It can change
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
    args.check_address(&keys)?;
    let runtime = runtime()?;
    let sockets = runtime.block_on(args.listen())?;
    let hangup = args.keys.has_file().then(keys::on_hangup).transpose()?;
    let loading = {
        let _within = runtime.enter();
        sockets.answer_while_loading()
    };
    let chat_template = args.template.read()?;
    let source = args.quantize.of(args.model.source()?)?;
    let limits = Limits {
        context: args.context.ctx,
        sequences: args.parallel,
        kv_tokens: args.kv_tokens,
        batch_tokens: args.batch.unwrap_or(0).max(args.parallel),
        output_rows: args.draft.rows(args.parallel),
        kv_format: args.device.kv.into(),
    };
    let (model, limits) = match args.batch {
        Some(_) => (load::model(source, &args.device, limits, &args.log)?, limits),
        None => load::with_usual_batch(source, &args.device, limits, &args.log)?,
    };
    let sampling = recommended::sampling(source, model.file(), &args.log);
    let name = args.name.clone().unwrap_or_else(|| name(model.file()));
    let engine = load::start(model, &args.draft, limits, &args.device, &args.log)?.with_queue(args.queue);
    let engine = template::replaced(engine, chat_template.as_deref());
    template::report(&engine, &args.log, Verbosity::info);
    if args.count_experts {
        engine.count_experts(true);
    }
    let access = Access { keys, hosts: args.allow_host.clone(), origins: args.allow_origin.clone() };
    let (aliases, strict, draft) = (args.alias.clone(), args.strict, args.draft.most());
    let (connections, body_bytes, page) = (args.connections, args.max_body << 20, !args.no_page);
    let allow_chat_template = args.allow_chat_template;
    let drain_delay = Duration::from_secs(args.drain_delay as u64);
    let basics = Options { aliases, access, strict, page, allow_chat_template, ..Options::new(name) };
    let vllm_metrics = matches!(args.metrics_names, Some(MetricsNames::Vllm));
    let basics = Options { vllm_metrics, ..basics };
    let options = Options { sampling, draft, connections, body_bytes, drain_delay, log: access_log, ..basics };
    drop(loading);
    let server = Server::new(sockets, engine, options);
    runtime.block_on(serve(args, server, hangup))
}

fn runtime() -> Result<Runtime, Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).max_blocking_threads(readers()).enable_all();
    runtime.build().map_err(|error| Failure::new(format!("cannot start the threads of the server: {error}")))
}

async fn serve(args: &ServeArgs, server: Server, hangup: Option<Arc<AtomicBool>>) -> Result<(), Failure> {
    let interrupt = if hangup.is_some() { Interrupt::watch_but_hangup()? } else { Interrupt::watch()? };
    let open = reachable(server.address()?);
    if !args.no_page {
        console::note(format_args!("http://{open}/ is the page to talk to {}", server.name()));
    }
    console::note(format_args!("programs: http://{open}/v1 (OpenAI), http://{open} (Anthropic); all: /openapi.json"));
    if let Some(address) = server.monitoring_address()? {
        console::note(format_args!("monitoring: http://{}/metrics, without a key", reachable(address)));
    }
    console::note(format_args!("ready; Ctrl-C ends the server"));
    let keys = server.keys();
    let reload = async {
        match hangup {
            Some(hangup) => args.keys.reload(hangup, keys, args.log).await,
            None => std::future::pending().await,
        }
    };
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

/// An address that a browser on this machine can open: 0.0.0.0 and :: mean all addresses of the machine.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

fn host_and_port(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        _ => format!("{host}:{port}"),
    }
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

impl ServeArgs {
    /// The sockets, on which connections wait from then on.
    async fn listen(&self) -> Result<Sockets, Failure> {
        let sockets = Sockets::bind(&host_and_port(&self.host, self.port)).await?;
        Ok(match &self.metrics_listen {
            Some(address) => sockets.with_monitoring(address).await?,
            None => sockets,
        })
    }

    /// Refuses to serve other machines without keys.
    fn check_address(&self, keys: &[Key]) -> Result<(), Failure> {
        if !keys.is_empty() || self.allow_unauthenticated {
            return Ok(());
        }
        let address = host_and_port(&self.host, self.port);
        let found = address.to_socket_addrs().map_err(|error| {
            Failure::new(format!("--host {} is not an address of this machine: {error}", self.host))
        })?;
        if found.into_iter().all(|address| address.ip().is_loopback()) {
            return Ok(());
        }
        Err(Failure::new(format!(
            "--host {} serves other machines, and anybody there could use the model; give keys with --keys FILE or \
             {}, or allow it with --allow-unauthenticated",
            self.host,
            keys::VARIABLE
        )))
    }
}
