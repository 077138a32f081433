use super::*;
use std::fs;

/// A folder of kernels of `sm_90a` with the machine code `code` for a unit, by the given versions of NVRTC.
fn folder_with(name: &str, unit: &Unit, compilers: &[(i32, i32)]) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gristmill-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    let input = Input::new(unit, "sm_90a").unwrap();
    for &(major, minor) in compilers {
        let cache = Cache::at(folder.join(format!("sm_90a-nvrtc{major}.{minor}")));
        cache.write(&input.name((major, minor)), format!("code of {major}.{minor}").as_bytes()).unwrap();
    }
    folder
}

fn without_compiler(capability: u32, folder: &PathBuf) -> Result<MachineCode, String> {
    MachineCode::with(Err("there is no NVRTC".to_owned()), None, capability, std::slice::from_ref(folder))
}

#[test]
fn kernels_compiled_ahead_need_no_compiler_and_others_do() {
    let [unit, other] = ["Q4_K", "Q5_K"].map(|format| Unit::new("gather_rows.cu", &[("FORMAT", format)]));
    let folder = folder_with("ahead", &unit, &[(12, 9), (13, 0)]);
    let code = without_compiler(90, &folder).unwrap();
    // Of several compilers the newest.
    assert_eq!(code.of(&unit), Ok((b"code of 13.0".to_vec(), Origin::Ahead)));
    assert!(code.has(&unit) && !code.has(&other));
    let missing = code.of(&other).unwrap_err();
    assert!(missing.contains("sm_90a-nvrtc13.0") && missing.ends_with("there is no NVRTC"), "{missing}");
    let report = code.report();
    assert!(
        report.starts_with("0 of the cache, 1 compiled ahead (") && report.ends_with(", 0 compiled now"),
        "{report}"
    );
    // Of another architecture.
    assert_eq!(without_compiler(89, &folder).unwrap_err(), "there is no NVRTC");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_kernel_of_another_source_or_a_damaged_file_is_not_used() {
    let unit = Unit::new("gather_rows.cu", &[("FORMAT", "Q4_K")]);
    let folder = folder_with("changed", &unit, &[(13, 0)]);
    let of_compiler = folder.join("sm_90a-nvrtc13.0");
    let name = Input::new(&unit, "sm_90a").unwrap().name((13, 0));
    // Under a name that another source would have, which is all that tells them apart.
    let input = Input::other(&unit, "sm_90a", "int changed;", &[]).unwrap();
    fs::rename(of_compiler.join(&name), of_compiler.join(input.name((13, 0)))).unwrap();
    assert!(!without_compiler(90, &folder).unwrap().has(&unit));
    // By another compiler than the folder's name says.
    fs::rename(of_compiler.join(input.name((13, 0))), of_compiler.join(&name)).unwrap();
    assert!(without_compiler(90, &folder).unwrap().of(&unit).is_ok());
    let renamed = folder.join("sm_90a-nvrtc13.1");
    fs::rename(&of_compiler, &renamed).unwrap();
    assert!(without_compiler(90, &folder).unwrap().of(&unit).is_err());
    fs::rename(&renamed, &of_compiler).unwrap();
    let mut content = fs::read(of_compiler.join(&name)).unwrap();
    *content.last_mut().unwrap() ^= 1;
    fs::write(of_compiler.join(&name), content).unwrap();
    assert!(without_compiler(90, &folder).unwrap().of(&unit).is_err());
    fs::remove_dir_all(&folder).unwrap();
}
