//! Tiny random vision towers: the logits of prompts with pictures against transformers', which `scripts/golden/vision.py`
//! wrote.

use std::collections::BTreeSet;
use std::sync::Arc;

use gpu_sim::Mode;
use gristmill_conformance::golden;
use gristmill_conformance::simulated::Simulator;
use gristmill_convert::{ConvertOptions, open_folder, open_tower, write_tower};
use gristmill_cpu::{Cpu, Level};
use gristmill_engine::model::{Batch, Encoder, Error, Limits, LoadOptions, Model, Outputs, Precision, Runner, Split};
use gristmill_engine::serde_json;
use gristmill_engine::vision::{Detail, ImageSpan, Limits as ImageLimits, Patches, Picture, Piece, Prepared, Size};
use gristmill_engine::{Engine, Pictures, Piece as Generated, Request, SamplingOptions};
use gristmill_files::gguf::{Array, GgufFile, GgufWriter, Value};
use gristmill_kernels::Backend;
use gristmill_kernels::reference::Reference;

/// With f32 activations only the f16 cache and rounding is left, whatever the weights' format.
const EXACT_TOLERANCE: f64 = 1e-6;

/// A prompt, and the logits of each position.
struct Prompt {
    tokens: Vec<u32>,
    spans: Vec<ImageSpan>,
    logits: Vec<Vec<f32>>,
}

struct Golden {
    name: &'static str,
    text: GgufFile,
    tower: GgufFile,
    tolerance: f64,
    prompts: Vec<Prompt>,
}

fn numbers(file: &GgufFile, key: &str) -> Option<Vec<usize>> {
    let Value::Array(values) = file.metadata().value(key)? else { return None };
    Some(Array::integers(values)?.map(|number| number.try_into().unwrap()).collect())
}

fn values(file: &GgufFile, name: &str) -> (Vec<u64>, Vec<f32>) {
    let tensor = file.tensor(name).unwrap();
    let mut values = vec![0.0; tensor.elements() as usize];
    tensor.format.decode(file.data(tensor), &mut values).unwrap();
    (tensor.shape.clone(), values)
}

impl Golden {
    fn read(name: &'static str) -> Golden {
        let open = |end: &str| GgufFile::open(golden::vision_folder().join(format!("{name}.{end}.gguf"))).unwrap();
        let file = open("golden");
        let picture = |(at, size): (usize, Vec<usize>)| {
            let (_, values) = values(&file, &format!("patches.{at}"));
            let tiles = vec![Patches { rows: size[0], columns: size[1], values }];
            Arc::new(Prepared { tiles, hash: [at as u8 + 1; 32] })
        };
        let sizes = (0..).map_while(|at| numbers(&file, &format!("golden.size.{at}")));
        let pictures: Vec<Arc<Prepared>> = sizes.enumerate().map(picture).collect();
        let prompt = |at: usize| {
            let tokens = numbers(&file, &format!("golden.tokens.{at}"))?;
            let span = |span: &[usize]| ImageSpan {
                start: span[0],
                tokens: span[1],
                image: pictures[span[2]].clone(),
                tile: 0,
                first: span[3],
            };
            let spans = numbers(&file, &format!("golden.spans.{at}"))?.chunks_exact(4).map(span).collect();
            let (shape, values) = values(&file, &format!("logits.{at}"));
            let logits = values.chunks(shape[0] as usize).map(<[f32]>::to_vec).collect();
            Some(Prompt { tokens: tokens.iter().map(|&token| token as u32).collect(), spans, logits })
        };
        let prompts: Vec<Prompt> = (0..).map_while(prompt).collect();
        assert_eq!(prompts.len(), 3);
        let text: &str = file.metadata().required("golden.text").unwrap();
        let text = GgufFile::open(golden::models_folder().join(format!("{text}.gguf"))).unwrap();
        let tolerance = file.metadata().required::<f32>("golden.tolerance").unwrap().into();
        Golden { name, text, tower: open("mmproj"), tolerance, prompts }
    }

    fn model(&self, backend: Backend, precision: Precision) -> Arc<Model> {
        self.split_model(vec![Arc::new(backend)], precision, None)
    }

    fn split_model(&self, backends: Vec<Arc<Backend>>, precision: Precision, split: Option<Split>) -> Arc<Model> {
        let options = LoadOptions { precision, split, ..LoadOptions::default() };
        let model = Model::with_backends(self.text.clone(), backends, options).unwrap();
        Arc::new(model.with_tower(self.tower.clone()).unwrap())
    }

    fn runner(&self, backend: Backend, precision: Precision) -> Runner {
        runner(self.model(backend, precision))
    }
}

fn runner(model: Arc<Model>) -> Runner {
    let limits =
        Limits { context: Some(64), sequences: 3, batch_tokens: 128, output_rows: Some(128), ..Limits::default() };
    Runner::new(model, limits).unwrap()
}

/// The end of a part that starts here: models whose images are whole read each in one step.
fn part_end(runner: &Runner, prompt: &Prompt, start: usize, part: usize) -> usize {
    let end = prompt.tokens.len().min(start.saturating_add(part));
    let is_whole = runner.model().spec().has_whole_images();
    let inside = |span: &&ImageSpan| is_whole && span.start < end && end < span.start + span.tokens;
    prompt.spans.iter().find(inside).map_or(end, |span| span.start + span.tokens)
}

/// The logits of all positions of a prompt, read in parts of so many tokens.
fn read(runner: &mut Runner, prompt: &Prompt, part: usize) -> Vec<f32> {
    let (id, mut found) = (runner.open_sequence().unwrap(), Vec::new());
    let mut start = 0;
    while start < prompt.tokens.len() {
        let (mut batch, end) = (Batch::new(), part_end(runner, prompt, start, part));
        batch.push_with_images(id, &prompt.tokens[start..end], start, &prompt.spans, Outputs::All);
        start = end;
        found.extend(runner.forward(&batch).unwrap().to_vec().unwrap());
    }
    runner.close_sequence(id).unwrap();
    found
}

/// All prompts in one batch.
fn together(runner: &mut Runner, prompts: &[Prompt]) -> Vec<f32> {
    let (mut batch, mut ids) = (Batch::new(), Vec::new());
    for prompt in prompts {
        ids.push(runner.open_sequence().unwrap());
        batch.push_with_images(ids[ids.len() - 1], &prompt.tokens, 0, &prompt.spans, Outputs::All);
    }
    let found = runner.forward(&batch).unwrap().to_vec().unwrap();
    ids.into_iter().for_each(|id| runner.close_sequence(id).unwrap());
    found
}

fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let error: f64 = found.iter().zip(expected).map(|(a, b)| square(a - b)).sum();
    error / expected.iter().map(|&x| square(x)).sum::<f64>()
}

fn expected(prompts: &[Prompt]) -> Vec<f32> {
    prompts.iter().flat_map(|prompt| prompt.logits.concat()).collect()
}

fn check(golden: &Golden, backend: Backend, precision: Precision) {
    check_model(golden, golden.model(backend, precision), precision);
}

fn check_model(golden: &Golden, model: Arc<Model>, precision: Precision) {
    let (name, tolerance) = (
        model.device_name(),
        match precision {
            Precision::Exact => EXACT_TOLERANCE,
            Precision::Fast => golden.tolerance,
        },
    );
    let mut runner = runner(model);
    let error = nmse(&together(&mut runner, &golden.prompts), &expected(&golden.prompts));
    println!("{:14} {error:.1e} of {tolerance:.0e}  ({name}, {precision:?})", golden.name);
    assert!(error <= tolerance, "{} on {name}: an error of {error:e}", golden.name);
    for prompt in &golden.prompts {
        let error = nmse(&read(&mut runner, prompt, 5), &prompt.logits.concat());
        assert!(error <= tolerance, "{} on {name}, in parts: an error of {error:e}", golden.name);
    }
    // Pictures come again, in other prompts and in parts.
    assert_eq!(runner.encoded_tiles(), 4);
}

fn goldens() -> Vec<Golden> {
    golden::visions().into_iter().map(Golden::read).collect()
}

#[test]
fn logits_are_those_of_transformers() {
    for golden in goldens() {
        check(&golden, Reference::backend(), Precision::Exact);
        for level in Level::available() {
            for precision in [Precision::Exact, Precision::Fast] {
                check(&golden, Cpu::backend(level, 2).unwrap(), precision);
            }
        }
    }
}

/// Rank 0 has the tower, and the others get the rows of pictures and their places. The first model has several positions for a token, and
/// rows that later layers add.
#[test]
fn ranks_read_pictures_too() {
    const SPLITS: [(usize, Split); 3] = [(2, Split::Experts), (3, Split::Tensor), (2, Split::Layers)];
    for (number, golden) in goldens().into_iter().enumerate() {
        let has_all = golden.name == "qwen3-vl-f32";
        for &(ranks, split) in
            SPLITS.iter().skip(if has_all { 0 } else { number % 3 }).take(if has_all { 3 } else { 1 })
        {
            let cpus = || (0..ranks).map(|_| Arc::new(Cpu::backend(Level::best(), 1).unwrap())).collect::<Vec<_>>();
            let options = LoadOptions { split: Some(split), ..LoadOptions::default() };
            match Model::with_backends(golden.text.clone(), cpus(), options) {
                Err(Error::Split { reason }) if split == Split::Layers => println!("{}: {reason}", golden.name),
                _ => check_model(&golden, golden.split_model(cpus(), Precision::Fast, Some(split)), Precision::Fast),
            }
        }
        if has_all {
            let gpus = (0..2).map(|_| Arc::new(Simulator::cuda(1, Mode::Fast).unwrap())).collect();
            check_model(&golden, golden.split_model(gpus, Precision::Fast, Some(Split::Tensor)), Precision::Fast);
        }
    }
}

/// On the CPU the rows of a picture, and what follows it, have the same bits in any company: in a batch, and in a pass of the
/// tower.
#[test]
fn company_changes_no_bit() {
    for golden in goldens() {
        let runner = || golden.runner(Cpu::backend(Level::best(), 2).unwrap(), Precision::Fast);
        let mut with_kept = runner();
        let alone: Vec<f32> =
            golden.prompts.iter().flat_map(|prompt| read(&mut with_kept, prompt, usize::MAX)).collect();
        assert_eq!(alone, together(&mut with_kept, &golden.prompts), "{}", golden.name);
        let in_parts: Vec<f32> = golden.prompts.iter().flat_map(|prompt| read(&mut with_kept, prompt, 1)).collect();
        assert_eq!(alone, in_parts, "{}", golden.name);
        assert_eq!(alone, together(&mut runner(), &golden.prompts), "{}, in one pass of the tower", golden.name);
    }
}

/// The pictures of several prompts are computed in one pass of the tower, whose last part gives the rows of all, if the memory
/// of the largest picture has room for them.
#[test]
fn small_pictures_share_a_pass() {
    let mut joint = 0;
    for golden in goldens() {
        let model = golden.model(Cpu::backend(Level::best(), 1).unwrap(), Precision::Fast);
        let layers = model.tower().unwrap().spec().layers;
        let mut runner = runner(model.clone());
        let waiting: Vec<_> = golden.prompts.iter().map(|prompt| (&prompt.spans[..], 0..prompt.tokens.len())).collect();
        let images: BTreeSet<_> =
            golden.prompts.iter().flat_map(|prompt| &prompt.spans).map(|span| span.image.hash).collect();
        let has_all = |runner: &Runner| waiting.iter().all(|(spans, positions)| runner.has_images(spans, positions));
        let mut parts = 0;
        let mut encoded = BTreeSet::new();
        while !has_all(&runner) {
            runner.encode_images(&waiting, 1).unwrap();
            encoded.insert(runner.encoded_tiles());
            parts += 1;
        }
        assert_eq!(encoded.last(), Some(&images.len()), "{}", golden.name);
        if encoded.len() == 2 {
            assert!(parts >= layers && parts <= layers + 3, "{}: {parts} parts of {layers} layers", golden.name);
            joint += 1;
        }

        let spans = golden.prompts.iter().flat_map(|prompt| &prompt.spans);
        let tiles: Vec<(&Prepared, usize)> = spans.map(|span| (&*span.image, span.tile)).collect();
        let mut encoder = Encoder::new(model.tower().unwrap().clone());
        let together = encoder.encode(&tiles).unwrap();
        for (tile, rows) in tiles.iter().zip(&together) {
            assert_eq!(encoder.encode(&[*tile]).unwrap(), [&rows[..]], "{}", golden.name);
        }
    }
    println!("{joint} towers have room for all pictures");
    assert!(joint >= 8);
}

#[test]
fn simulated_gpus_give_the_same() {
    for golden in goldens() {
        check(&golden, Simulator::cuda(3, Mode::Fast).unwrap(), Precision::Exact);
        check(&golden, Simulator::metal(3, Mode::Fast).unwrap(), Precision::Exact);
    }
}

/// A request for some tokens after a prompt.
fn request(tokens: &[u32], spans: &[ImageSpan]) -> Request {
    Request {
        pictures: Pictures::new(spans.to_vec()),
        sampling: SamplingOptions::greedy(),
        max_tokens: Some(6),
        ignore_end: true,
        ..Request::new(tokens.to_vec())
    }
}

fn generate(engine: &Engine, request: Request) -> (Vec<u32>, usize) {
    let pieces: Vec<Generated> = engine.generate(request).unwrap().collect::<Result<_, _>>().unwrap();
    let usage = pieces.last().unwrap().finish.unwrap().usage;
    (pieces.iter().map(|piece| piece.token).collect(), usage.reused_tokens)
}

/// Equal tokens of other pictures reuse nothing, and the same picture does; neither changes a token.
#[test]
fn the_prefix_cache_knows_pictures() {
    goldens().iter().filter(|golden| golden.name.ends_with("f32")).for_each(prefix_cache_knows_pictures);
}

fn prefix_cache_knows_pictures(golden: &Golden) {
    let model = golden.model(Cpu::backend(Level::best(), 1).unwrap(), Precision::Exact);
    let limits = Limits { context: Some(128), sequences: 4, batch_tokens: 20, ..Limits::default() };
    let start = || Engine::start(model.clone(), limits).unwrap();
    let prompt = &golden.prompts[0];
    let other = |span: &ImageSpan| {
        let mut image = Prepared { hash: [99; 32], ..(*span.image).clone() };
        image.tiles[0].values.iter_mut().for_each(|value| *value = -*value);
        ImageSpan { image: Arc::new(image), ..span.clone() }
    };
    let others: Vec<ImageSpan> = prompt.spans.iter().map(other).collect();
    let engine = start();
    // Some of these models write one token again and again, whatever they see, unless it is drawn.
    let sampling = SamplingOptions { temperature: 1.5, seed: Some(7), ..SamplingOptions::NONE };
    let max_tokens = Some(24);
    let request = |tokens: &[u32], spans: &[ImageSpan]| Request { sampling, max_tokens, ..request(tokens, spans) };
    let (first, reused) = generate(&engine, request(&prompt.tokens, &prompt.spans));
    assert_eq!(reused, 0);
    // The next turn of the conversation.
    let turn = [&prompt.tokens[..], &first[..], &[5, 6, 7]].concat();
    let (cold, _) = generate(&start(), request(&turn, &prompt.spans));
    let (of_other, _) = generate(&start(), request(&turn, &others));
    assert_ne!(cold, of_other, "the picture matters");
    let (found, reused) = generate(&engine, request(&turn, &others));
    assert!(found == of_other && reused <= prompt.spans[0].start, "{reused} tokens of another picture are reused");
    let (found, reused) = generate(&engine, request(&turn, &prompt.spans));
    assert!(found == cold && reused >= prompt.tokens.len(), "{}: {reused} tokens are reused", golden.name);
}

/// With memory for one of them, requests are preempted and start again with their pictures.
#[test]
fn preempted_requests_keep_their_pictures() {
    goldens().iter().filter(|golden| golden.name.ends_with("f32")).for_each(preempted_keep_their_pictures);
}

fn preempted_keep_their_pictures(golden: &Golden) {
    let model = golden.model(Cpu::backend(Level::best(), 1).unwrap(), Precision::Exact);
    let batch_tokens = if model.spec().has_whole_images() { 18 } else { 7 };
    let longest = golden.prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap();
    let kv_tokens = if longest > 45 { 192 } else { 128 };
    let limits = Limits { context: Some(120), sequences: 3, batch_tokens, ..Limits::default() };
    let alone = Engine::start(model.clone(), limits).unwrap();
    let requests = || {
        golden.prompts.iter().map(|prompt| Request { max_tokens: Some(60), ..request(&prompt.tokens, &prompt.spans) })
    };
    let wanted: Vec<Vec<u32>> = requests().map(|request| generate(&alone, request).0).collect();
    let few = Engine::start(model, Limits { kv_tokens: Some(kv_tokens), ..limits }).unwrap();
    let running: Vec<_> = requests().map(|request| few.generate(request).unwrap()).collect();
    let mut preemptions = 0;
    for (generation, wanted) in running.into_iter().zip(wanted) {
        let pieces: Vec<Generated> = generation.collect::<Result<_, _>>().unwrap();
        preemptions += pieces.last().unwrap().finish.unwrap().usage.preemptions;
        assert_eq!(pieces.iter().map(|piece| piece.token).collect::<Vec<_>>(), wanted);
    }
    assert!(preemptions > 0);
}

/// The plan counts the largest image within limits.
#[test]
fn small_images_take_less_memory() {
    let model = Golden::read("qwen3-vl-f32").model(Cpu::backend(Level::best(), 1).unwrap(), Precision::Exact);
    let planned = |pixels: u64| {
        let images = ImageLimits { pixels, ..ImageLimits::default() };
        Runner::new(model.clone(), Limits { context: Some(4096), images, ..Limits::default() }).unwrap().plan().pictures
    };
    let (all, few) = (planned(ImageLimits::default().pixels), planned(64));
    assert!(few * 2 < all, "{few} of {all} bytes");
}

/// While the tower computes an image, a sequence that decodes gets a token in each step, of which a layer takes one.
#[test]
fn a_tower_does_not_hold_up_other_sequences() {
    let golden = Golden::read("qwen3-vl-f32");
    let model = golden.model(Cpu::backend(Level::best(), 1).unwrap(), Precision::Exact);
    let layers = model.tower().unwrap().spec().layers;
    let limits = Limits { context: Some(100), sequences: 2, batch_tokens: 64, ..Limits::default() };
    let engine = Engine::start(model, limits).unwrap();
    let prompt = &golden.prompts[0];
    let (alone, _) = generate(&engine, request(&prompt.tokens, &prompt.spans));
    let mut image = Prepared { hash: [77; 32], ..(*prompt.spans[0].image).clone() };
    image.tiles[0].values.iter_mut().for_each(|value| *value *= 0.5);
    let spans = [ImageSpan { image: Arc::new(image), ..prompt.spans[0].clone() }];
    // Tokens of both, in the order in which the engine emits them.
    let (sender, tokens) = std::sync::mpsc::channel();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let start = |is_image: bool, gate: Option<std::sync::mpsc::Receiver<()>>, request: Request| {
        let sender = sender.clone();
        let mut places = engine.reserve(0, 1).unwrap();
        let deliver = move |piece: Result<Generated, gristmill_engine::EngineError>| {
            let _ = sender.send((is_image, piece.unwrap().token));
            // The engine waits at the first token, until both requests are there.
            let _ = gate.as_ref().map(|gate| gate.recv());
            true
        };
        engine.deliver_choices(request, &mut places, [deliver]).unwrap()
    };
    let text = start(false, Some(gate), Request { max_tokens: Some(60), ..request(&[5, 6, 7], &[]) });
    assert!(!tokens.recv().unwrap().0);
    let with_image = start(true, None, request(&prompt.tokens, &spans));
    drop((open, sender));
    let order: Vec<(bool, u32)> = tokens.iter().collect();
    let before = order.iter().take_while(|(is_image, _)| !is_image).count();
    assert!(before > layers, "{before} tokens while the tower computed {layers} layers");
    assert_eq!(order.iter().filter(|(is_image, _)| *is_image).count(), alone.len());
    drop((text, with_image));
}

/// The engine refuses what the prompt has no room for, before anything runs. A receipt has the hashes.
#[test]
fn requests_are_checked() {
    let golden = Golden::read("lfm2-vl-f32");
    let model = golden.model(Cpu::backend(Level::best(), 1).unwrap(), Precision::Fast);
    let limits = Limits { context: Some(64), sequences: 1, batch_tokens: 64, ..Limits::default() };
    let engine = Engine::start(model, limits).unwrap();
    let prompt = &golden.prompts[0];
    let span = &prompt.spans[0];
    for (spans, part) in [
        (vec![ImageSpan { start: prompt.tokens.len() - 2, ..span.clone() }], "use the tower's layout"),
        (vec![span.clone(), span.clone()], "expected a range after"),
        (vec![ImageSpan { tokens: 7, ..span.clone() }], "of a tile (expected at most 6)"),
        (vec![ImageSpan { tile: 3, ..span.clone() }], "there is no tile 3"),
    ] {
        let Err(error) = engine.generate(request(&prompt.tokens, &spans)) else { panic!("a wrong picture: {part}") };
        let message = error.to_string();
        assert!(message.contains(part), "{message}");
    }
    let json = serde_json::to_string(&request(&prompt.tokens, &prompt.spans)).unwrap();
    assert!(json.contains(&format!("\"sha256\":\"{}\"", "01".repeat(32))), "{json}");
    let message = serde_json::from_str::<Request>(&json).unwrap_err().to_string();
    assert!(message.contains("1 pictures, of which a receipt has only the hashes"), "{message}");
    let without = serde_json::to_string(&request(&prompt.tokens, &[])).unwrap();
    assert!(!without.contains("pictures") && serde_json::from_str::<Request>(&without).is_ok());
}

/// A fork, and a sequence that was truncated to the middle of a picture, go on as the whole prompt does.
#[test]
fn forks_and_truncated_sequences_have_their_pictures() {
    for golden in goldens() {
        let mut runner = golden.runner(Cpu::backend(Level::best(), 2).unwrap(), Precision::Exact);
        let prompt = &golden.prompts[1];
        let wanted = read(&mut runner, prompt, usize::MAX);
        let vocab = wanted.len() / prompt.tokens.len();
        let (all, last) = (prompt.tokens.len(), prompt.tokens.len() - 2);
        let step = |runner: &mut Runner, id, range: std::ops::Range<usize>| {
            let mut batch = Batch::new();
            batch.push_with_images(id, &prompt.tokens[range.clone()], range.start, &prompt.spans, Outputs::All);
            runner.forward(&batch).unwrap().to_vec().unwrap()
        };
        let id = runner.open_sequence().unwrap();
        step(&mut runner, id, 0..last);
        let fork = runner.fork_sequence(id).unwrap();
        // Without its pictures, which it has.
        let mut batch = Batch::new();
        batch.push(fork, &prompt.tokens[last..], Outputs::All);
        assert_eq!(runner.forward(&batch).unwrap().to_vec().unwrap(), wanted[last * vocab..], "{}", golden.name);
        runner.close_sequence(fork).unwrap();
        let inside = runner.checkpoint(id, prompt.spans[1].start + 1).unwrap();
        runner.truncate(id, inside).unwrap();
        assert_eq!(step(&mut runner, id, inside..all), wanted[inside * vocab..], "{}", golden.name);
    }
}

/// A folder as transformers saves it, opened and written, is the file of llama.cpp's converter, apart from F16.
#[test]
fn folders_are_the_files() {
    let f16 = |value: f32| half::f16::from_f32(value).to_f32();
    let goldens = goldens();
    let folders = goldens.iter().map(|golden| (golden, golden::vision_folder().join(golden.name)));
    let folders: Vec<_> = folders.filter(|(_, folder)| folder.is_dir()).collect();
    assert_eq!(folders.len(), 12);
    for (golden, folder) in folders {
        let opened = open_tower(&folder, 2).unwrap().expect("a tower");
        let path = std::env::temp_dir().join(format!("{}-{}.gguf", golden.name, std::process::id()));
        write_tower(&opened, &path).unwrap();
        let written = GgufFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for file in [opened, written] {
            let names =
                |file: &GgufFile| file.tensors().iter().map(|tensor| tensor.name.clone()).collect::<BTreeSet<_>>();
            assert_eq!(names(&file), names(&golden.tower), "{}", golden.name);
            for tensor in golden.tower.tensors() {
                let (found, (shape, wanted)) =
                    (file.tensor(&tensor.name).unwrap(), values(&golden.tower, &tensor.name));
                let mut read = vec![0.0; wanted.len()];
                found.format.decode(file.load(found).unwrap().as_slice(), &mut read).unwrap();
                // The file has the sum of 1 and the folder's number.
                let shift = if tensor.name == "mm.soft_emb_norm.weight" { 1.0 } else { 0.0 };
                let wanted: Vec<f32> = wanted.into_iter().map(|value| f16(value - shift) + shift).collect();
                assert!(found.shape == shape && read == wanted, "{}: {}", golden.name, tensor.name);
            }
            for (key, value) in golden.tower.metadata().iter() {
                let is_of_file = ["general.name", "clip.vision.projection_dim", "clip.vision.is_deepstack_layers"];
                if !is_of_file.contains(&key) && key != "clip.vision.image_size" {
                    assert_eq!(file.metadata().value(key), Some(value), "{}: {key}", golden.name);
                }
            }
            let model =
                Model::with_backend(golden.text.clone(), Arc::new(Reference::backend()), LoadOptions::default());
            let mut runner = runner(Arc::new(model.unwrap().with_tower(file).unwrap()));
            let error = nmse(&together(&mut runner, &golden.prompts), &expected(&golden.prompts));
            assert!(error < 1e-3, "{}: {error:e}", golden.name);
        }
    }
}

/// Older files have the names of the MLP's two matrices the other way round.
#[test]
fn swapped_names_of_an_mlp_are_read() {
    let golden = Golden::read("idefics3-vl-f32");
    let renamed = |name: &str| match (name.contains(".ffn_up."), name.contains(".ffn_down.")) {
        (true, _) => name.replace(".ffn_up.", ".ffn_down."),
        (_, true) => name.replace(".ffn_down.", ".ffn_up."),
        _ => name.to_owned(),
    };
    let mut header = GgufWriter::new();
    for (key, value) in golden.tower.metadata().iter() {
        header.set(key, value.clone()).unwrap();
    }
    for tensor in golden.tower.tensors() {
        header.tensor(&renamed(&tensor.name), tensor.format, &tensor.shape).unwrap();
    }
    let path = std::env::temp_dir().join(format!("swapped-{}.gguf", std::process::id()));
    let mut out = header.begin(std::fs::File::create(&path).unwrap()).unwrap();
    for tensor in golden.tower.tensors() {
        out.write_tensor(&renamed(&tensor.name), golden.tower.load(tensor).unwrap().as_slice()).unwrap();
    }
    out.finish().unwrap();
    let swapped = GgufFile::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let model = Model::with_backend(golden.text.clone(), Arc::new(Reference::backend()), LoadOptions::default());
    let mut runner = runner(Arc::new(model.unwrap().with_tower(swapped).unwrap()));
    let error = nmse(&together(&mut runner, &golden.prompts), &expected(&golden.prompts));
    assert!(error < EXACT_TOLERANCE, "{error:e}");
}

/// Pictures of any shape, from pixels through the processor of the tower's file: the layout has the tower's tokens, and the
/// model reads them.
#[test]
fn pictures_of_any_shape_are_read() {
    let sizes = [(1, 1), (150, 1), (1, 90), (37, 53)].map(|(width, height)| Size { width, height });
    for golden in goldens().iter().filter(|golden| golden.name.ends_with("f32")) {
        let model = golden.model(Cpu::backend(Level::best(), 2).unwrap(), Precision::Fast);
        let (tower, vocab) = (model.tower().unwrap().clone(), model.spec().vocab as u32);
        let limits = Limits { context: Some(2048), sequences: 1, batch_tokens: 2048, ..Limits::default() };
        let mut runner = Runner::new(model, limits).unwrap();
        for size in sizes {
            let values = 0..size.width * size.height * 3;
            let picture = Picture::new(size, values.map(|at| (at * 31 % 256) as u8).collect()).unwrap();
            let image = Arc::new(tower.processor().prepare(&picture, Detail::High));
            let layout = tower.processor().layout(size, Detail::High);
            let (mut tokens, mut spans) = (vec![1, 2], Vec::new());
            for piece in layout.pieces {
                match piece {
                    Piece::Text(_) => tokens.push(3),
                    Piece::Tokens { tile, first, count } => {
                        spans.push(ImageSpan { start: tokens.len(), tokens: count, image: image.clone(), tile, first });
                        tokens.resize(tokens.len() + count, vocab - 8);
                    }
                }
            }
            tokens.push(4);
            for (at, tile) in image.tiles.iter().enumerate() {
                let of_spans: usize = spans.iter().filter(|span| span.tile == at).map(|span| span.tokens).sum();
                assert_eq!(tower.tokens(tile).unwrap(), of_spans, "{}: {size:?}", golden.name);
            }
            let id = runner.open_sequence().unwrap();
            let mut batch = Batch::new();
            batch.push_with_images(id, &tokens, 0, &spans, Outputs::Last);
            let logits = runner.forward(&batch).unwrap().to_vec().unwrap();
            assert!(logits.iter().all(|logit| logit.is_finite()), "{}: {size:?}", golden.name);
            runner.close_sequence(id).unwrap();
        }
    }
}

/// The pixels of `noise` in `scripts/golden/pictures.py`.
fn noise(size: Size, seed: u64) -> Picture {
    let byte = |i: u64| {
        let mut x = (i + (seed << 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((x ^ (x >> 31)) >> 56) as u8
    };
    Picture::new(size, (0..(size.width * size.height * 3) as u64).map(byte).collect()).unwrap()
}

/// From pixels to logits: the processor of the folder that transformers wrote, the tower and the text model.
#[test]
fn logits_of_pixels_are_those_of_transformers() {
    let mut families = BTreeSet::new();
    for golden in goldens() {
        let file = GgufFile::open(golden::vision_folder().join(format!("{}.golden.gguf", golden.name))).unwrap();
        let Some(pixels) = numbers(&file, "golden.pixels") else { continue };
        let model = golden.model(Cpu::backend(Level::best(), 2).unwrap(), Precision::Exact);
        let folder = open_tower(&golden::vision_folder().join(golden.name), 1).unwrap().expect("a tower");
        let tower = model.load_tower(folder).unwrap();
        let size = Size { width: pixels[0], height: pixels[1] };
        let image = Arc::new(tower.processor().prepare(&noise(size, pixels[2] as u64), Detail::High));
        let span = |span: &[usize]| {
            let image = image.clone();
            ImageSpan { start: span[0], tokens: span[1], image, tile: 0, first: span[3] }
        };
        let spans: Vec<ImageSpan> = numbers(&file, "golden.pixels.spans").unwrap().chunks_exact(4).map(span).collect();
        let layout = tower.processor().layout(size, Detail::High);
        assert_eq!(layout.tokens(), spans.iter().map(|span| span.tokens).sum::<usize>(), "{}", golden.name);
        let tokens: Vec<u32> =
            numbers(&file, "golden.pixels.tokens").unwrap().iter().map(|&token| token as u32).collect();
        let limits = Limits {
            context: Some(tokens.len()),
            batch_tokens: tokens.len(),
            output_rows: Some(tokens.len()),
            ..Limits::default()
        };
        let mut runner = Runner::new(model, limits).unwrap();
        let (id, mut batch) = (runner.open_sequence().unwrap(), Batch::new());
        batch.push_with_images(id, &tokens, 0, &spans, Outputs::All);
        let found = runner.forward(&batch).unwrap().to_vec().unwrap();
        let error = nmse(&found, &values(&file, "pixels.logits").1);
        println!("{:16} {error:.1e}", golden.name);
        assert!(error <= EXACT_TOLERANCE, "{}: {error:e}", golden.name);
        families.insert(golden.tower.metadata().required::<&str>("clip.projector_type").unwrap().to_owned());
    }
    assert_eq!(families.len(), 8, "{families:?}");
}

/// The text model within a folder of a vision model is that of a folder without: LFM2's, and Gemma 3's, whose settings leave
/// out what is the default.
#[test]
fn the_text_models_of_vision_folders_are_converted() {
    let inner = "model.language_model.";
    text_model_within("lfm2", "lfm2_vl", inner, &[]);
    text_model_within("gemma3", "gemma3", inner, &["rope_parameters"]);
    text_model_within("gemma4", "gemma4_unified", inner, &[]);
    text_model_within("smollm", "smolvlm", "model.text_model.", &[]);
}

fn text_model_within(plain: &str, model_type: &str, inner: &str, left_out: &[&str]) {
    let folder = std::env::temp_dir().join(format!("{plain}-within-{}", std::process::id()));
    let plain = golden::folders_folder().join(plain);
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(&plain).unwrap().map(|file| file.unwrap().path()) {
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    let mut config: serde_json::Value =
        serde_json::from_slice(&std::fs::read(plain.join("config.json")).unwrap()).unwrap();
    left_out.iter().for_each(|key| drop(config.as_object_mut().unwrap().remove(*key)));
    let within = serde_json::json!({"model_type": model_type, "vision_config": {}, "text_config": config});
    std::fs::write(folder.join("config.json"), within.to_string()).unwrap();
    let bytes = std::fs::read(plain.join("model.safetensors")).unwrap();
    let end = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let header: serde_json::Map<_, serde_json::Value> = serde_json::from_slice(&bytes[8..end]).unwrap();
    let renamed = |name: String| name.strip_prefix("model.").map_or(name.clone(), |rest| format!("{inner}{rest}"));
    let header: serde_json::Map<_, _> = header.into_iter().map(|(name, tensor)| (renamed(name), tensor)).collect();
    let header = serde_json::to_vec(&header).unwrap();
    let written = [&(header.len() as u64).to_le_bytes()[..], &header, &bytes[end..]].concat();
    std::fs::write(folder.join("model.safetensors"), written).unwrap();
    let open = |folder| open_folder(folder, &ConvertOptions::default(), 1).unwrap().0;
    let (found, wanted) = (open(&folder), open(&plain));
    assert!(open_tower(&folder, 1).unwrap().is_none(), "no tensor of a tower is there");
    assert_eq!(found.tensors().len(), wanted.tensors().len());
    for tensor in wanted.tensors() {
        let same = found.tensor(&tensor.name).unwrap();
        assert_eq!(found.load(same).unwrap().as_slice(), wanted.load(tensor).unwrap().as_slice(), "{}", tensor.name);
    }
    if !left_out.is_empty() {
        let base = found.metadata().required::<f32>(&format!("{model_type}.rope.freq_base")).unwrap();
        assert_eq!(base, 1e6);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Where tokens of an image see each other, a part of an image is refused, by a runner and by an engine whose steps have no
/// room for all of it.
#[test]
fn parts_of_whole_images_are_refused() {
    let golden = Golden::read("gemma3-vl-f32");
    let backend = || Cpu::backend(Level::best(), 1).unwrap();
    let mut runner = golden.runner(backend(), Precision::Fast);
    let prompt = &golden.prompts[0];
    let id = runner.open_sequence().unwrap();
    let mut batch = Batch::new();
    batch.push_with_images(id, &prompt.tokens[..10], 0, &prompt.spans, Outputs::Last);
    let Err(error) = runner.forward(&batch) else { panic!("a part of an image") };
    assert!(error.to_string().contains("7 of 16 tokens"), "{error}");
    assert_eq!(runner.sequence_len(id).unwrap(), 0);
    let limits = Limits { context: Some(64), sequences: 2, batch_tokens: 16, ..Limits::default() };
    let engine = Engine::start(golden.model(backend(), Precision::Fast), limits).unwrap();
    let refused = |request: Request| engine.generate(request).err().unwrap().to_string();
    let message = refused(request(&prompt.tokens, &prompt.spans));
    assert!(message.contains("16 tokens, of which one step must have all (found room for 15)"), "{message}");
    let limits = Limits { batch_tokens: 17, ..limits };
    let engine = Engine::start(golden.model(backend(), Precision::Fast), limits).unwrap();
    let with = Request { prompt_logprobs: Some(1), ..request(&prompt.tokens, &prompt.spans) };
    let message = engine.generate(with).err().unwrap().to_string();
    assert!(message.contains("prompt_logprobs"), "{message}");
    assert_eq!(generate(&engine, request(&prompt.tokens, &prompt.spans)).0.len(), 6);
}

/// Towers that are missing are refused by their projector, with those that are there.
#[test]
fn other_towers_are_refused_by_name() {
    let text = Golden::read("lfm2-vl-f32").text;
    for projector in ["llama4", "glm5v", "internvl", "qwen2.5vl_merger"] {
        let mut header = GgufWriter::new();
        header.set("general.architecture", "clip").unwrap();
        header.set("clip.projector_type", projector).unwrap();
        let backend = Arc::new(Reference::backend());
        let model = Model::with_backend(text.clone(), backend, LoadOptions::default()).unwrap();
        let message = model.with_tower(header.preview()).err().unwrap().to_string();
        let start = format!("clip.projector_type: `{projector}` is not supported; known: ");
        assert!(message.starts_with(&start) && message.contains("gemma4uv"), "{message}");
    }
}

/// What cannot be read is refused by name, and the sequence stays as it is.
#[test]
fn wrong_pictures_are_refused() {
    let golden = Golden::read("lfm2-vl-f32");
    let backend = || Cpu::backend(Level::best(), 1).unwrap();
    let prompt = &golden.prompts[0];
    let refused = |runner: &mut Runner, spans: &[ImageSpan]| {
        let id = runner.open_sequence().unwrap();
        let mut batch = Batch::new();
        batch.push_with_images(id, &prompt.tokens, 0, spans, Outputs::Last);
        let Err(error) = runner.forward(&batch) else { panic!("a wrong picture") };
        let error = error.to_string();
        assert_eq!(runner.sequence_len(id).unwrap(), 0);
        runner.close_sequence(id).unwrap();
        error
    };
    let mut text_only = runner(Arc::new(
        Model::with_backend(golden.text.clone(), Arc::new(backend()), LoadOptions::default()).unwrap(),
    ));
    let message = refused(&mut text_only, &prompt.spans);
    assert!(message.contains("this lfm2 model reads no images"), "{message}");

    let mut runner = golden.runner(backend(), Precision::Fast);
    let span = &prompt.spans[0];
    let with = |change: &dyn Fn(&mut Patches)| {
        let mut image = Prepared { hash: [77; 32], ..(*span.image).clone() };
        change(&mut image.tiles[0]);
        vec![ImageSpan { image: Arc::new(image), ..span.clone() }]
    };
    let odd = with(&|tile| {
        tile.values.truncate(tile.values.len() / 6 * 5);
        tile.columns -= 1;
    });
    for (spans, part) in [
        (odd, "4 × 5 patches (expected multiples of 2)"),
        (with(&|tile| tile.values.truncate(7)), "7 values"),
        (with(&|tile| tile.rows = 0), "0 × 6 patches"),
        (vec![ImageSpan { tile: 1, ..span.clone() }], "tile 1 of a picture of 1"),
        (vec![ImageSpan { first: 1, ..span.clone() }], "found 6, expected an end at 6"),
    ] {
        let message = refused(&mut runner, &spans);
        assert!(message.contains(part), "{message}");
    }
    let wrong = Model::with_backend(golden.tower.clone(), Arc::new(backend()), LoadOptions::default());
    assert!(matches!(wrong, Err(Error::Architecture { .. })));
    let text = Model::with_backend(golden.text.clone(), Arc::new(backend()), LoadOptions::default()).unwrap();
    let message = text.with_tower(golden.text.clone()).err().unwrap().to_string();
    assert!(message.contains("lfm2") && message.contains("expected `clip`"), "{message}");
}
