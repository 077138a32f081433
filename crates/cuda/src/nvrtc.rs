//! NVRTC, NVIDIA's compiler as a library (<https://docs.nvidia.com/cuda/nvrtc/>), found and opened at run time.
//!
//! Eight functions are bound by hand. A machine can have NVRTC of CUDA 12 or 13, from a toolkit or from the Python
//! package, or lack it, and no case may panic.

#![allow(unsafe_code)]

use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

/// A human-readable error message.
type Failure = String;

/// `NVRTC_ERROR_INVALID_OPTION`: of ours, the architecture's name may be unknown.
const INVALID_OPTION: c_int = 5;
const TOO_OLD: &str = " (it may be too old for the device: install a newer one)";

type Program = *mut c_void;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;

/// The library, open for as long as the process lives.
#[derive(Debug)]
pub struct Nvrtc {
    create: Create,
    compile: Compile,
    log_size: Size,
    log: Get,
    cubin_size: Size,
    cubin: Get,
    destroy: Destroy,
    version: (i32, i32),
    path: PathBuf,
}

impl Nvrtc {
    /// Opens the first NVRTC that is found: by name, in toolkits, in Python packages.
    ///
    /// # Errors
    /// What to install; and which libraries were found that cannot be used, and why.
    pub fn open() -> Result<Self, Failure> {
        let mut tried = 0;
        let mut refused = Vec::new();
        for path in candidates() {
            tried += 1;
            match Self::open_at(&path) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(reason) => refused.push(format!("{}: {reason}", path.display())),
            }
        }
        let found = match refused.is_empty() {
            true => format!("was not found ({tried} places were looked at)"),
            false => format!("cannot be used ({})", refused.join("; ")),
        };
        Err(format!("the kernels' compiler, NVRTC, {found}; {}", remedy()))
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Where it was found; a name alone if the system's loader knew the place.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The library at a path, or by a name that the system's loader may know; `None` if there is none.
    fn open_at(path: &Path) -> Result<Option<Self>, Failure> {
        // NVRTC opens its builtins by name alone, which are next to it: they are opened first, by path.
        for builtins in beside(path, "libnvrtc-builtins.so") {
            // SAFETY: NVIDIA's library, whose initialisation has no requirements.
            if let Ok(library) = unsafe { Library::new(builtins) } {
                std::mem::forget(library);
            }
        }
        // SAFETY: as above.
        let library = match unsafe { Library::new(path) } {
            Ok(library) => library,
            Err(error) => {
                let why = error.source().map_or_else(|| error.to_string(), ToString::to_string);
                return if is_missing(path, &why) { Ok(None) } else { Err(format!("it cannot be loaded: {why}")) };
            }
        };
        let failure = |error: libloading::Error| error.to_string();
        let mut version = (0, 0);
        // SAFETY: the signature is that of nvrtc.h; both pointers are to integers that live through the call.
        let code = unsafe { library.get::<Version>(b"nvrtcVersion").map_err(failure)?(&mut version.0, &mut version.1) };
        if code != 0 || version.0 < 12 {
            return Err(format!("it is of CUDA {}.{}, which is older than 12", version.0, version.1));
        }
        // SAFETY: the signatures are those of nvrtc.h, the same in CUDA 12 and 13; the library is never closed.
        let found = unsafe {
            Self {
                create: *library.get::<Create>(b"nvrtcCreateProgram").map_err(failure)?,
                compile: *library.get::<Compile>(b"nvrtcCompileProgram").map_err(failure)?,
                log_size: *library.get::<Size>(b"nvrtcGetProgramLogSize").map_err(failure)?,
                log: *library.get::<Get>(b"nvrtcGetProgramLog").map_err(failure)?,
                cubin_size: *library.get::<Size>(b"nvrtcGetCUBINSize").map_err(failure)?,
                cubin: *library.get::<Get>(b"nvrtcGetCUBIN").map_err(failure)?,
                destroy: *library.get::<Destroy>(b"nvrtcDestroyProgram").map_err(failure)?,
                version,
                path: path.to_owned(),
            }
        };
        std::mem::forget(library);
        Ok(Some(found))
    }

    /// Compiles a source for the architecture that the options name; the machine code and the compiler's log, or the
    /// log.
    pub(crate) fn compile(&self, source: &str, name: &str, options: &[String]) -> Result<(Vec<u8>, String), Failure> {
        let c = |text: &str| CString::new(text).map_err(|_| "a source with a zero byte".to_owned());
        let (source, name) = (c(source)?, c(name)?);
        let options = options.iter().map(|option| c(option)).collect::<Result<Vec<_>, _>>()?;
        let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = ptr::null_mut();
        // SAFETY: the strings live through the call, and there are no headers.
        let code = unsafe { (self.create)(&mut program, source.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null()) };
        if code != 0 {
            return Err(format!("NVRTC refused the source with code {code}"));
        }
        // SAFETY: the program was created above; the options live through the call.
        let code = unsafe { (self.compile)(program, options.len() as c_int, options.as_ptr()) };
        let log = self.take(program, self.log_size, self.log);
        let log = log.as_deref().map(text_of).unwrap_or_default();
        let cubin = if code == 0 { self.take(program, self.cubin_size, self.cubin) } else { None };
        // SAFETY: the program is destroyed once, and not used after.
        unsafe { (self.destroy)(&mut program) };
        match cubin {
            Some(cubin) if !cubin.is_empty() => Ok((cubin, log)),
            _ => {
                let (major, minor) = self.version;
                let remedy = if code == INVALID_OPTION { TOO_OLD } else { "" };
                Err(format!("NVRTC {major}.{minor} failed with code {code}{remedy}:\n{log}"))
            }
        }
    }

    /// The content that a pair of functions for size and content gives.
    fn take(&self, program: Program, size: Size, get: Get) -> Option<Vec<u8>> {
        let mut bytes = 0;
        // SAFETY: the program is alive, the size's place too.
        if unsafe { size(program, &mut bytes) } != 0 {
            return None;
        }
        let mut content = vec![0_u8; bytes];
        // SAFETY: the buffer has as many bytes as the library has just said.
        (unsafe { get(program, content.as_mut_ptr().cast()) } == 0).then_some(content)
    }
}

fn text_of(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether a library that could not be loaded is missing. Only the loader knows its search path. For a missing file,
/// glibc and musl print the library's name and the C library's message. If a dependency is missing, the name differs,
/// or musl adds the dependent library.
fn is_missing(path: &Path, error: &str) -> bool {
    let by_name = path.parent().is_none_or(|directory| directory.as_os_str().is_empty());
    let itself = |error: &str| error.contains(&format!("{}: ", path.display())) && !error.contains("(needed by");
    match by_name {
        true => cfg!(windows) || (error.contains("No such file") && itself(error)),
        false => !path.exists(),
    }
}

/// Files next to `path` whose names start so.
fn beside(path: &Path, prefix: &str) -> Vec<PathBuf> {
    let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
        .filter(|path| !path.to_string_lossy().contains(".alt."))
        .collect();
    found.sort();
    found
}

/// The folders of NVRTC among Python packages: of CUDA 13, of CUDA 12, and of both on Windows.
const PYTHON_FOLDERS: [&str; 4] =
    ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib", "nvidia/cu13/bin/x86_64", "nvidia/cuda_nvrtc/bin"];

/// Folders of Python packages, in a process of Python.
static PACKAGES: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Sets folders with Python packages, where NVRTC is searched too. An error then names the extra of the package
/// `gristmill`. Later calls change nothing.
pub fn search_python_packages(folders: Vec<PathBuf>) {
    PACKAGES.get_or_init(|| folders);
}

/// How to get NVRTC.
fn remedy() -> String {
    let package = if PACKAGES.get().is_some() { "\"gristmill[cuda]\"" } else { "nvidia-cuda-nvrtc" };
    format!("install the CUDA toolkit 12 or newer, or `pip install {package}`")
}

/// Where NVRTC may be, the most likely first.
fn candidates() -> Vec<PathBuf> {
    let names: &[&str] = match cfg!(windows) {
        true => &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
        false => &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"],
    };
    let mut found: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
    let mut directories: Vec<PathBuf> = Vec::new();
    // Where CUDA's own installers and every CUDA program look; not settings of gristmill.
    for root in ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(std::env::var_os).map(PathBuf::from) {
        directories.extend([root.join("lib64"), root.join("lib"), root.join("bin")]);
    }
    directories.extend(["/usr/local/cuda/lib64", "/opt/cuda/lib64", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from));
    for packages in python_packages() {
        directories.extend(PYTHON_FOLDERS.map(|folder| packages.join(folder)));
    }
    for directory in directories.iter().filter(|directory| directory.is_dir()) {
        found.extend(names.iter().map(|name| directory.join(name)).filter(|path| path.exists()));
    }
    found
}

/// Folders of Python packages, where NVIDIA's libraries may be.
pub(crate) fn python_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = vec!["/usr/lib".into(), "/usr/local/lib".into()];
    roots.extend(std::env::var_os("VIRTUAL_ENV").map(|root| PathBuf::from(root).join("lib")));
    roots.extend(std::env::var_os("HOME").map(|root| PathBuf::from(root).join(".local/lib")));
    let pythons = roots.iter().flat_map(|root| beside(&root.join("any"), "python3"));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.join(packages)));
    PACKAGES.get().into_iter().flatten().cloned().chain(packages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_loaded_is_not_a_missing_one() {
        let path = std::env::temp_dir().join(format!("gristmill-{}-libnvrtc.so.13", std::process::id()));
        assert!(matches!(Nvrtc::open_at(&path), Ok(None)));
        std::fs::write(&path, "no library").unwrap();
        let refused = Nvrtc::open_at(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(refused.unwrap_err().starts_with("it cannot be loaded: "));
        assert!(matches!(Nvrtc::open_at(Path::new("libgristmill-is-not-nvrtc.so.13")), Ok(None)));
    }

    #[test]
    fn in_a_process_of_python_its_packages_are_searched_and_the_error_names_the_extra() {
        assert!(remedy().ends_with("`pip install nvidia-cuda-nvrtc`"));
        let packages = std::env::temp_dir().join(format!("gristmill-{}-packages", std::process::id()));
        let name = if cfg!(windows) { "nvrtc64_130_0.dll" } else { "libnvrtc.so.13" };
        let library = packages.join("nvidia/cu13/lib").join(name);
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        std::fs::write(&library, "no library").unwrap();
        search_python_packages(vec![packages.clone()]);
        let found = candidates().contains(&library);
        std::fs::remove_dir_all(&packages).unwrap();
        assert!(found && remedy().ends_with("`pip install \"gristmill[cuda]\"`"));
    }

    #[test]
    fn a_library_that_lacks_another_is_not_a_missing_one() {
        let path = Path::new("libnvrtc.so.13");
        let missing = [
            "libnvrtc.so.13: cannot open shared object file: No such file or directory",
            "Error loading shared library libnvrtc.so.13: No such file or directory",
        ];
        let lacking = [
            "libz.so.9: cannot open shared object file: No such file or directory",
            "Error loading shared library libz.so.9: No such file or directory (needed by /usr/lib/libnvrtc.so.13)",
            "libnvrtc.so.13: cannot open shared object file: Permission denied",
        ];
        assert!(cfg!(windows) || missing.iter().all(|error| is_missing(path, error)));
        assert!(cfg!(windows) || !lacking.iter().any(|error| is_missing(path, error)));
    }
}
