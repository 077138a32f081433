//! A compiled source that is loaded, and its launches.

use crate::check::Buffer;
use crate::code::Code;
use crate::compile;
use crate::engine::{Engine, EngineView, Entry, KernelView, LaunchJob};
use crate::error::{Error, Result};
use crate::launch::{Access, Arg, Launch, Limits, Signature};
use crate::source::{Language, Mode, Source};
use libloading::Library;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::ptr::null;
use std::sync::Arc;

/// A compiled source. Its launches may run in several threads at once.
#[derive(Debug)]
pub struct Program {
    kernels: BTreeMap<String, Kernel>,
    enter: unsafe extern "C" fn(*mut EngineView),
    /// How many shared variables the source has.
    variables: u32,
    code: Arc<Code>,
    checked: bool,
    language: Language,
    /// Holds the code that the above points to.
    _library: Library,
}

#[derive(Debug)]
struct Kernel {
    entry: Entry,
    signature: Signature,
}

impl Program {
    /// Compiles a source, or takes it from the cache in the folder `cache`, which is made if it is missing. Several
    /// threads and processes may use one folder.
    pub fn compile(source: &Source, cache: &Path) -> Result<Self> {
        let path = compile::library(source, cache)?;
        let at = path.clone();
        let failed = |reason: libloading::Error| Error::Load { path: at.clone(), reason: reason.to_string() };
        // SAFETY: the library is what the compiler made of our prelude and the source, whose initialisers build a list.
        // The functions have these types in `sim.h`.
        unsafe {
            let library = Library::new(&path).map_err(failed)?;
            let enter = *library.get(b"gpu_sim_enter\0").map_err(failed)?;
            let variables =
                library.get::<unsafe extern "C" fn() -> u32>(b"gpu_sim_shared_variables\0").map_err(failed)?();
            let first =
                library.get::<unsafe extern "C" fn() -> *const KernelView>(b"gpu_sim_kernels\0").map_err(failed)?();
            type Address = unsafe extern "C" fn() -> *const u8;
            let begin = library.get::<Address>(b"gpu_sim_begin\0").map_err(failed)?().addr();
            let end = library.get::<Address>(b"gpu_sim_end\0").map_err(failed)?().addr();
            let code = Arc::new(Code { path, begin, end, known: Default::default(), passed: Default::default() });
            let checked = source.mode == Mode::Checked;
            let language = source.language;
            Ok(Self { kernels: list(first), enter, variables, code, checked, language, _library: library })
        }
    }

    /// The names of the source's kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.kernels.keys().map(String::as_str)
    }

    /// Source names and lines at which threads have waited for each other or for memory, in checked mode; where those
    /// are in functions that are inlined, also the lines that call these.
    pub fn passed(&self) -> BTreeSet<(String, u32)> {
        self.code.passed()
    }

    /// Runs a launch to its end.
    ///
    /// # Safety
    /// Buffers are memory that the kernel may use as their [`Access`](crate::Access) says, and nothing else uses at the
    /// same time. In fast mode the kernel must keep to them; in checked mode it is stopped if it does not.
    pub unsafe fn launch(&self, launch: &Launch) -> Result<()> {
        let Some(kernel) = self.kernels.get(launch.kernel) else {
            let known = self.kernels.keys().cloned().collect();
            return Err(Error::UnknownKernel { kernel: launch.kernel.to_owned(), known });
        };
        launch.check(&kernel.signature, self.language)?;

        // Values lie where the kernel's types may be: at multiples of 16 bytes.
        let mut values: Vec<u128> = Vec::new();
        let mut places = Vec::with_capacity(launch.args.len());
        for arg in launch.args {
            places.push(values.len());
            match arg {
                Arg::Buffer { address, .. } => values.push(address.expose_provenance() as u128),
                Arg::Null => values.push(0),
                Arg::Bytes(bytes) => values.extend(bytes.chunks(16).map(|chunk| {
                    let mut value = [0; 16];
                    value[..chunk.len()].copy_from_slice(chunk);
                    u128::from_le_bytes(value)
                })),
                Arg::TensorMap(map) => {
                    let words = map.write();
                    values.extend(words.chunks(2).map(|pair| u128::from(pair[0]) | u128::from(pair[1]) << 64));
                }
            }
        }
        values.push(0);
        let at = |place: usize| (&raw const values[place]).cast::<c_void>();
        // A kernel of Metal takes the addresses of its buffers, and bytes as a buffer.
        let arguments: Vec<*const c_void> = (launch.args.iter().zip(&places))
            .map(|(arg, &place)| match (arg, self.language) {
                (Arg::Buffer { address, .. }, Language::Metal) => address.cast_const().cast(),
                (Arg::Null, Language::Metal) => null(),
                _ => at(place),
            })
            .collect();

        let buffers: Vec<Buffer> = (launch.args.iter().enumerate())
            .filter_map(|(argument, arg)| match *arg {
                Arg::Buffer { address, bytes, access, settled } => {
                    Some(Buffer { argument, begin: address.addr(), bytes, access, settled })
                }
                Arg::TensorMap(map) => {
                    let begin = map.address.addr();
                    let bytes = map.bytes();
                    Some(Buffer { argument, begin, bytes, access: Access::Read, settled: false })
                }
                Arg::Bytes(bytes) if self.language == Language::Metal => {
                    let begin = arguments[argument].addr();
                    Some(Buffer { argument, begin, bytes: bytes.len(), access: Access::Read, settled: true })
                }
                Arg::Null | Arg::Bytes(_) => None,
            })
            .collect();

        let job = LaunchJob {
            entry: kernel.entry,
            enter: self.enter,
            arguments: &arguments,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            variables: self.variables,
            limits: Limits::of(self.language),
            order: launch.order,
            overlaps: launch.overlaps,
            code: &self.code,
            checked: self.checked,
            buffers: &buffers,
        };
        thread_local! {
            static ENGINE: Cell<Option<Box<Engine>>> = const { Cell::new(None) };
        }
        let mut engine = match ENGINE.take() {
            Some(engine) => engine,
            None => Engine::start().map_err(Error::Memory)?,
        };
        // SAFETY: the arguments fit the parameters; the caller vouches for the memory.
        let result = unsafe { engine.run(&job) };
        ENGINE.set(Some(engine));
        result
    }
}

/// Reads the list that a compiled source has made of its kernels.
///
/// # Safety
/// `at` is null or a kernel of a loaded library.
unsafe fn list(mut at: *const KernelView) -> BTreeMap<String, Kernel> {
    let mut kernels = BTreeMap::new();
    while !at.is_null() {
        // SAFETY: as the caller says; a kernel's name is a C string, and `count` parameters stand at `parameters`.
        unsafe {
            let kernel = &*at;
            let name = CStr::from_ptr(kernel.name).to_string_lossy().into_owned();
            let parameters = std::slice::from_raw_parts(kernel.parameters, kernel.count as usize).to_vec();
            let threads = (kernel.threads != 0).then_some(kernel.threads);
            kernels.insert(name, Kernel { entry: kernel.entry, signature: Signature { parameters, threads } });
            at = kernel.next;
        }
    }
    kernels
}
