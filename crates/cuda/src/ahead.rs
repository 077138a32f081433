//! Kernels compiled ahead: on a machine without the GPU, into a folder that other machines read.
//!
//! # Kernels compiled ahead are used only if they are the same
//!
//! A folder has a folder `ARCHITECTURE-nvrtcVERSION` for each architecture and compiler, and there a file for each unit,
//! in the form of the user's cache. *The file's name is the hash of code, definitions, architecture and compiler version,
//! so a start finds only what NVRTC of that version would make of its own sources; it compiles everything else. A file
//! whose content has another hash than its head is not read.* The machine that reads needs no NVRTC, and if it has
//! one, it may be of another version. If the driver refuses machine code, for instance because it is older than the
//! compiler, the kernel is compiled.
//!
//! The kernels of a model depend on the card: plans read its number of multiprocessors. [`CARDS`] are those that an
//! architecture has, and a model runs once for each on an [`AbsentCard`], which computes nothing.

use super::cache::Cache;
use super::jit::{Input, architecture};
use super::nvrtc::Nvrtc;
use super::{Cuda, Options};
use gristmill_gpu::precompile::{DryRun, parallel_map};
use gristmill_gpu::{Properties, Unit};
use gristmill_kernels::Backend;
use gristmill_kernels::error::Result;
use gristmill_kernels::tensor::DeviceId;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Cards of one compute capability.
#[derive(Debug)]
pub struct Cards {
    /// The compute capability, 90 for 9.0.
    pub capability: u32,
    /// Shared memory that a block can have, in KiB ("Technical Specifications per Compute Capability" of NVIDIA's CUDA C++
    /// Programming Guide).
    shared_kib: u32,
    /// The numbers of multiprocessors of NVIDIA's cards of this capability.
    multiprocessors: &'static [u32],
}

/// The cards for which kernels are compiled ahead, by NVIDIA's data sheets. A card with another number of multiprocessors
/// may compile a few kernels at its first start.
pub const CARDS: [Cards; 7] = [
    Cards { capability: 75, shared_kib: 64, multiprocessors: &[30, 34, 36, 40, 46, 48, 68, 72] },
    Cards { capability: 80, shared_kib: 163, multiprocessors: &[56, 108] },
    Cards { capability: 86, shared_kib: 99, multiprocessors: &[28, 38, 46, 48, 58, 60, 68, 72, 80, 82, 84] },
    Cards { capability: 89, shared_kib: 99, multiprocessors: &[24, 34, 46, 56, 58, 60, 66, 76, 80, 114, 128, 142] },
    Cards { capability: 90, shared_kib: 227, multiprocessors: &[78, 114, 132] },
    Cards { capability: 100, shared_kib: 227, multiprocessors: &[148] },
    Cards { capability: 120, shared_kib: 99, multiprocessors: &[30, 36, 48, 50, 70, 84, 170, 188] },
];

/// Memory of an absent card: any model fits, and batches are as large as on any card. A smaller batch has no other kernels.
const MEMORY: u64 = 1 << 42;

/// A card that is not here. Backends over it compute nothing, and it collects the units that they would launch.
#[derive(Debug)]
pub struct AbsentCard(Arc<DryRun>);

impl Cards {
    /// A card for each number of multiprocessors.
    pub fn each(&self) -> impl Iterator<Item = AbsentCard> {
        self.multiprocessors.iter().map(|&multiprocessors| {
            AbsentCard(Arc::new(DryRun::absent(Properties {
                id: DeviceId::Cuda(0),
                name: format!("{} with {multiprocessors} multiprocessors", architecture(self.capability)),
                architecture: self.capability,
                multiprocessors,
                shared_bytes: self.shared_kib << 10,
                memory: MEMORY,
            })))
        })
    }
}

impl AbsentCard {
    /// A backend over the card.
    ///
    /// # Errors
    /// [`Error::Device`](gristmill_kernels::Error::Device) if it has no kernels of the family that the options name.
    pub fn backend(&self, options: Options) -> Result<Backend> {
        Cuda::backend(self.0.clone(), options)
    }

    /// The units that were launched or prepared so far, and those that every model may need.
    pub fn units(&self) -> BTreeSet<Unit> {
        let mut units = self.0.units();
        units.insert(Unit::new("rates.cu", &[]));
        units
    }
}

/// Kernels of one architecture by one compiler.
#[derive(Debug)]
pub struct Folder {
    architecture: String,
    compiler: (i32, i32),
    files: Cache,
}

/// What [`compile`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compiled {
    /// Units that were compiled.
    pub new: usize,
    /// Units that the folder had.
    pub kept: usize,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Folder {
    /// The folders of all architectures in a folder of kernels, the newest compiler first; none if the folder is missing.
    pub fn all(folder: &Path) -> Vec<Folder> {
        let mut found: Vec<Folder> = folder
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name();
                let (architecture, version) = name.to_str()?.split_once("-nvrtc")?;
                let (major, minor) = version.split_once('.')?;
                let compiler = (major.parse().ok()?, minor.parse().ok()?);
                Some(Folder { architecture: architecture.to_owned(), compiler, files: Cache::at(entry.path()) })
            })
            .collect();
        found.sort_by(|a, b| (b.compiler, &a.architecture).cmp(&(a.compiler, &b.architecture)));
        found
    }

    fn new(folder: &Path, architecture: &str, compiler: (i32, i32)) -> Folder {
        let (major, minor) = compiler;
        let files = Cache::at(folder.join(format!("{architecture}-nvrtc{major}.{minor}")));
        Folder { architecture: architecture.to_owned(), compiler, files }
    }

    /// The architecture in NVRTC's terms: `sm_90a`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Major and minor version of the NVRTC that compiled the kernels.
    pub fn compiler(&self) -> (i32, i32) {
        self.compiler
    }

    /// The files.
    pub fn files(&self) -> &Cache {
        &self.files
    }

    /// The machine code of an input, unless it is missing or damaged.
    pub(crate) fn get(&self, input: &Input) -> Option<Vec<u8>> {
        self.files.get(&input.name(self.compiler))
    }

    /// Whether there is a file for an input, which may be damaged.
    pub(crate) fn has(&self, input: &Input) -> bool {
        self.files.has(&input.name(self.compiler))
    }
}

impl fmt::Display for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.folder().display().fmt(f)
    }
}

/// Compiles units for a compute capability into a folder of kernels. `progress` gets the number of units that are done.
///
/// # Errors
/// There is no NVRTC, it refuses a unit, or a file cannot be written.
pub fn compile(
    units: &BTreeSet<Unit>,
    capability: u32,
    folder: &Path,
    progress: &mut dyn FnMut(usize),
) -> std::result::Result<Compiled, String> {
    let nvrtc = Nvrtc::open()?;
    let architecture = architecture(capability);
    let to = Folder::new(folder, &architecture, nvrtc.version());
    let units: Vec<&Unit> = units.iter().collect();
    let one = |unit: &&Unit| -> std::result::Result<Compiled, String> {
        let input = Input::new(unit, &architecture)?;
        if let Some(code) = to.get(&input) {
            return Ok(Compiled { new: 0, kept: 1, bytes: code.len() as u64 });
        }
        let (code, _log) = input.compile(&nvrtc).map_err(|reason| format!("{unit}, {architecture}: {reason}"))?;
        let written = to.files.write(&input.name(to.compiler), &code);
        written.map_err(|error| format!("{to}: {error}"))?;
        Ok(Compiled { new: 1, kept: 0, bytes: code.len() as u64 })
    };
    let sum = |all: Compiled, one: Compiled| Compiled {
        new: all.new + one.new,
        kept: all.kept + one.kept,
        bytes: all.bytes + one.bytes,
    };
    let compiled = parallel_map(&units, one, progress);
    compiled.into_iter().try_fold(Compiled::default(), |all, one| Ok(sum(all, one?)))
}

/// Where a program that is installed at `program` has kernels: `share/gristmill/kernels` next to it, or next to its folder.
pub fn installed(program: &Path) -> Vec<PathBuf> {
    let folders = program.ancestors().skip(1).take(2);
    folders.map(|folder| folder.join("share/gristmill/kernels")).filter(|folder| folder.is_dir()).collect()
}
