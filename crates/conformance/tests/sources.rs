//! The lists of kernel sources and shared structs are complete, and every unit expands.
#![cfg(all(target_arch = "x86_64", unix))]

use gpu_sim::Language;
use gristmill_conformance::sources;
use gristmill_gpu::Unit;
use gristmill_gpu::source::{self, Library};
use gristmill_kernels::format::Format;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const GPUS: [Language; 2] = [Language::Cuda, Language::Metal];

fn units(language: Language) -> Vec<Unit> {
    match language {
        Language::Cuda => gristmill_cuda::units::all(),
        Language::Metal => gristmill_metal::units::all(),
    }
}

fn folder(library: &Library) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(library.krate).join("src")
}

#[test]
fn every_unit_expands_and_every_file_is_of_some_unit() {
    for language in GPUS {
        let libraries = sources::libraries(language);
        let expand = |unit: &Unit| {
            source::expand(unit, libraries, &[]).unwrap_or_else(|| panic!("{unit}: a file is missing, or a format"))
        };
        let expanded: Vec<String> = units(language).iter().map(expand).collect();
        for (name, _) in libraries.iter().flat_map(|library| library.files) {
            let begin = format!("#line 1 \"{name}\"");
            assert!(expanded.iter().any(|source| source.contains(&begin)), "{language:?}: no unit has {name}");
        }
    }
}

#[test]
fn the_lists_are_what_lies_in_the_folders() {
    for library in GPUS.into_iter().flat_map(sources::libraries) {
        let there = std::fs::read_dir(folder(library).join("kernels")).unwrap();
        let there: BTreeSet<String> = there.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let listed: BTreeSet<String> = library.files.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(listed, there, "{}", library.krate);
    }
}

/// A unit has the blocks of its own format (affine formats share one source) and of at most one more, on which this
/// builds.
#[test]
fn a_unit_has_one_format() {
    for language in GPUS {
        let expand = |defines| source::expand(&Unit { file: "embed.gpu", defines }, sources::libraries(language), &[]);
        for &format in Format::ALL {
            let source = expand(vec![("FORMAT", format.name().to_owned())]).expect("a format");
            let declared = |other: &Format| {
                [format!("struct {other} {{"), format!("> {other};")].iter().any(|text| source.contains(text))
            };
            assert!(declared(&format), "{format}");
            let declared = Format::ALL.iter().filter(|other| declared(other)).map(|other| other.gpu_source().0);
            assert!(declared.collect::<BTreeSet<_>>().len() <= 2, "{format}");
        }
        for defines in [vec![], vec![("FORMAT", "Q9_9".to_owned())]] {
            assert_eq!(expand(defines), None);
        }
    }
}

/// Every shared struct is in the list of its crate, and some unit includes it.
#[test]
fn every_shared_struct_is_listed() {
    fn declared(path: &Path) -> usize {
        if path.is_dir() {
            return std::fs::read_dir(path).unwrap().map(|entry| declared(&entry.unwrap().path())).sum();
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            return 0;
        }
        std::fs::read_to_string(path).unwrap().lines().filter(|line| *line == "shared_struct! {").count()
    }
    for language in GPUS {
        let libraries = sources::libraries(language);
        let expand = |unit: &Unit| source::expand(unit, libraries, &[]).expect("a source");
        let expanded: Vec<String> = units(language).iter().map(expand).collect();
        for library in libraries {
            assert_eq!(library.structs.len(), declared(&folder(library)), "{}", library.krate);
            for layout in library.structs {
                let name = layout.name;
                let declarations = |source: &String| source.matches(&format!("struct {name} {{")).count();
                let most = expanded.iter().map(declarations).max();
                assert_eq!(most, Some(1), "{language:?}: {name} is declared once in a unit that includes it");
            }
        }
    }
}

/// NVRTC moves other assembly out of conditions, here those that keep a read within its memory.
#[test]
fn assembly_that_reads_memory_is_volatile() {
    let mut statements = 0;
    for (name, content) in sources::all() {
        for statement in content.split("asm").skip(1).filter_map(|rest| rest.split(");").next()) {
            statements += 1;
            assert!(!statement.starts_with('(') || !statement.contains("[%"), "{name}: asm{statement}");
        }
    }
    assert!(statements > 10);
}
