//! NCCL's library: how it is found and called, with a stand-in (`nccl.c`), because NCCL itself needs devices.

#![cfg(unix)]

use gristmill_collective::{Error, Nccl, NcclGroup, NcclLibrary};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gristmill-nccl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// With the stand-in of a version in a folder below; `None` without a C compiler.
    fn with(name: &str, version: i32, below: &str) -> Option<Self> {
        let this = Self::new(name);
        let to = this.0.join(below);
        std::fs::create_dir_all(&to).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nccl.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", &format!("-DVERSION={version}"), "-o"])
            .arg(to.join("libnccl.so.2"))
            .arg(source);
        match compiler.status() {
            Ok(status) if status.success() => Some(this),
            Ok(status) => panic!("cc: {status}"),
            Err(_) => {
                eprintln!("skipped: no C compiler");
                None
            }
        }
    }

    fn library(&self) -> NcclLibrary {
        NcclLibrary::open(std::slice::from_ref(&self.0)).unwrap()
    }

    /// How often communicators were finalized, destroyed and aborted.
    fn ends(&self) -> [i32; 3] {
        let mut ends = [0; 3];
        // SAFETY: the stand-in's function writes three integers; the library is open.
        unsafe {
            let library = libloading::Library::new(self.0.join("libnccl.so.2")).unwrap();
            library.get::<unsafe extern "C" fn(*mut i32)>(b"gristmill_ends").unwrap()(ends.as_mut_ptr());
        }
        ends
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn address(values: &mut [f32]) -> u64 {
    values.as_mut_ptr() as u64
}

/// Streams by which the stand-in knows what to do.
const IN_ORDER: usize = 0;
const LOST_LATER: usize = 1;
const NEVER_ACCEPTED: usize = 2;
const REFUSED: usize = 3;

fn all_reduce(rank: &Nccl, values: &mut [f32], stream: usize) -> Result<(), Error> {
    // SAFETY: the stand-in computes in memory of the host, before it returns.
    unsafe { rank.all_reduce_device(address(values), values.len(), stream as *mut _) }
}

#[test]
fn calls_have_the_signatures_of_the_library_whether_it_is_old_or_new() {
    for version in [21_800, 22_703, 23_100, 23_203] {
        let Some(folder) = Folder::with(&format!("calls-{version}"), version, "") else { return };
        let library = folder.library();
        let group = library.group().unwrap();
        assert_eq!(NcclGroup::from_bytes(&group.to_bytes()), Some(group));
        assert_eq!(NcclGroup::from_bytes(&[42; 127]), None);
        let rank = library.join(group, 1, 2, MINUTE).unwrap();
        let (mut values, mut all) = ([1.0, 2.5, -3.0], [0.0; 6]);
        all_reduce(&rank, &mut values, IN_ORDER).unwrap();
        assert_eq!(values, [2.0, 5.0, -6.0]);
        let stream = std::ptr::null_mut();
        // SAFETY: as in `all_reduce`.
        unsafe {
            rank.all_gather_device(address(&mut values), address(&mut all), 3, stream).unwrap();
            rank.send_device(0, address(&mut values), 3, stream).unwrap();
            rank.receive_device(0, address(&mut all[1..]), 3, stream).unwrap();
            rank.broadcast_device(0, address(&mut values), 4, stream).unwrap();
            let expected = Err(Error::Rank { rank: 2, size: 2 });
            assert_eq!(rank.send_device(2, address(&mut values), 3, stream), expected);
        }
        assert_eq!(all, [2.0, 2.0, 5.0, -6.0, 5.0, -6.0]);
        assert_eq!(values.map(f32::to_bits), [0x0101_0101, 5.0_f32.to_bits(), (-6.0_f32).to_bits()]);
        assert_eq!(rank.check(), Ok(()));
        drop(rank);
        assert_eq!(folder.ends(), [1, 1, 0]);
        assert_eq!(library.join(group, 2, 2, MINUTE).unwrap_err(), Error::Rank { rank: 2, size: 2 });
    }
}

#[test]
fn a_rank_that_is_lost_refused_or_late_is_an_error_and_its_communicator_is_aborted() {
    let Some(folder) = Folder::with("faults", 23_203, "") else { return };
    let library = folder.library();
    let join = || library.join(library.group().unwrap(), 0, 2, Duration::from_millis(100)).unwrap();
    let rank = join();
    assert_eq!(all_reduce(&rank, &mut [1.0], LOST_LATER), Ok(()));
    let lost = rank.check().unwrap_err().to_string();
    assert!(lost.starts_with("NCCL: remote process exited (code 6); NCCL_DEBUG=INFO prints more"), "{lost}");
    drop(rank);
    assert_eq!(folder.ends(), [0, 0, 1]);
    let refused = all_reduce(&join(), &mut [1.0], REFUSED).unwrap_err().to_string();
    assert!(refused.starts_with("NCCL: invalid usage (code 5); "), "{refused}");
    let late = all_reduce(&join(), &mut [1.0], NEVER_ACCEPTED).unwrap_err().to_string();
    assert!(late.starts_with("NCCL: no all_reduce of all 2 ranks within 0.1 s; look for the error"), "{late}");
    assert_eq!(folder.ends(), [0, 0, 3]);
}

/// A call that waits ends too.
#[test]
fn a_rank_can_be_aborted_from_another_thread_once() {
    let Some(folder) = Folder::with("abort", 23_203, "") else { return };
    let library = folder.library();
    let rank = library.join(library.group().unwrap(), 0, 2, MINUTE).unwrap();
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| all_reduce(&rank, &mut [1.0], NEVER_ACCEPTED));
        std::thread::sleep(Duration::from_millis(20));
        rank.abort("a device failed");
        waiting.join().unwrap()
    });
    let expected = Err(Error::Lost { rank: 0, reason: "a device failed".into() });
    assert_eq!(waiting, expected);
    rank.abort("another reason");
    assert_eq!(rank.check(), expected);
    assert_eq!(all_reduce(&rank, &mut [1.0], IN_ORDER), expected);
    drop(rank);
    assert_eq!(folder.ends(), [0, 0, 1]);
}

#[test]
fn a_library_is_found_in_a_folder_of_python_packages() {
    let Some(folder) = Folder::with("python", 23_203, "nvidia/nccl/lib") else { return };
    let library = NcclLibrary::open(&["/nowhere".into(), folder.0.clone()]).unwrap();
    assert_eq!(library.version(), "2.32.3");
    assert_eq!(library.path(), folder.0.join("nvidia/nccl/lib/libnccl.so.2"));
}

#[test]
fn a_library_that_is_too_old_or_none_is_named_with_what_to_install() {
    let Some(old) = Folder::with("old", 21_701, "") else { return };
    let none = Folder::new("none");
    std::fs::write(none.0.join("libnccl.so.2"), "no library").unwrap();
    let other = Folder::new("empty");
    let error = match NcclLibrary::open(&[other.0.clone(), old.0.clone(), none.0.clone()]) {
        Err(error) => error.to_string(),
        Ok(library) => return eprintln!("skipped: this machine has {}", library.path().display()),
    };
    let path = |folder: &Folder| folder.0.join("libnccl.so.2").display().to_string();
    assert!(error.contains(&format!("{}: too old (found 2.17.1, expected 2.18.0 or newer)", path(&old))), "{error}");
    assert!(error.contains(&format!("{}: ", path(&none))) && !error.contains(&path(&other)), "{error}");
    assert!(error.contains("; libnccl.so.2: "), "{error}");
    assert!(error.ends_with(
        "; install NCCL 2.18 or newer: `pip install nvidia-nccl-cu13`, or Debian's and NVIDIA's package libnccl2"
    ));
}
