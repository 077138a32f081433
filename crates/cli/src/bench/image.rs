//! `bench --image`: the speed of a vision tower.

use std::fs;
use std::sync::Arc;

use gristmill_cpu::{Level, Profile};
use gristmill_engine::model::Tower;
use gristmill_engine::open_device;
use gristmill_engine::vision::Size;
use gristmill_files::gguf::GgufFile;
use gristmill_lab::bench::{Images, image, machine};
use gristmill_lab::synthetic::{Synthetic, write_tower};

use super::{BenchArgs, cache};
use crate::failure::Failure;
use crate::source::Source;
use crate::{console, kind, output};

/// Bytes of a synthetic tower, about.
const TOWER_BYTES: u64 = 1 << 30;

/// WIDTHxHEIGHT, in pixels.
pub(super) fn size(text: &str) -> Result<Size, String> {
    let sides = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    match sides {
        Some((width, height)) if (1..=1 << 14).contains(&width) && (1..=1 << 14).contains(&height) => {
            Ok(Size { width, height })
        }
        _ => Err("it must be WIDTHxHEIGHT in pixels, each at most 16384, such as 1024x1024".to_owned()),
    }
}

/// Measures the tower of a model, or a synthetic one for a synthetic model, which is not written.
pub(super) fn run(args: &BenchArgs, size: Size) -> Result<(), Failure> {
    let (text, tower) = match &args.synthetic {
        Some(spec) => {
            let text = Synthetic::parse(spec, args.layers)?.preview()?;
            let tower = synthetic(args, kind::info(&text)?.spec.hidden)?;
            (text, tower)
        }
        None => {
            let source: Source = args.model.source()?;
            let text = source.open(&args.log)?;
            let projector = args.mmproj.open(source, &args.log)?;
            let lacks = || Failure::new("--image: the model has no vision tower; name one with --mmproj");
            (text, projector.ok_or_else(lacks)?.file)
        }
    };
    let profile = args.profile.then(|| Arc::new(Profile::default()));
    let backend = match &profile {
        Some(profile) => super::profiled(&args.device, profile)?,
        None => open_device(&args.device.load_options()?)?.backend,
    };
    let (device, spec) = (backend.name(), kind::info(&text)?.spec);
    let tower = Tower::load(tower, &spec, backend, args.device.precision.into())?;
    let of_machine = |profile| {
        let level = args.device.cpu_level.unwrap_or_else(Level::best);
        (profile, machine::measure(level, args.device.threads()))
    };
    let images = Images { size, count: args.batch, repeats: args.repeats };
    let report = image::measure(Arc::new(tower), device, images, profile.map(of_machine))?;
    let report = report.ok_or_else(|| Failure::new("--image: the image has no pixels; use at least 1x1"))?;
    if args.json { console::print_json(&report) } else { console::print_report(&report) }
}

/// The synthetic tower for a text model of this width, in the cache.
fn synthetic(args: &BenchArgs, width: usize) -> Result<GgufFile, Failure> {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => cache()?.join(format!("synthetic-tower-{width}.mmproj.gguf")),
    };
    if !path.is_file() {
        let folder = output::folder(&path);
        fs::create_dir_all(folder).map_err(|error| {
            Failure::new(format!("cannot make {}: {error}; name a place that can be written with -o", folder.display()))
        })?;
        output::check_space(&path, TOWER_BYTES)?;
        write_tower(&path, width)?;
        args.log.info(format_args!("wrote {}", path.display()));
    }
    Ok(GgufFile::open(&path)?)
}
