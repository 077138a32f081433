//! A device whose memory is full, and a system that refuses to pin memory.

use gristmill_engine::model::DraftOrder;

use super::*;

/// Steps whose last prompts are longer than the first, so they need more memory; graphs that were captured before are replayed after.
const GROWING: [[usize; 3]; 8] =
    [[1, 0, 0], [1, 0, 0], [1, 0, 0], [1, 0, 0], [5, 0, 0], [1, 0, 0], [9, 4, 4], [1, 0, 0]];

/// If the device's memory is full in a step, slots are freed and the step has its tokens, in graphs that were captured before too.
#[test]
fn a_full_device_frees_slots() {
    for name in [NAME, "gpt-oss-mxfp4"] {
        let (experts, _) = experts_of(name);
        let all =
            load(name, device(Options::default(), None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
        let expected = logits_of(name, &all, &GROWING).unwrap();
        let vocab = all.spec().vocab;
        for (stream_tokens, choice) in [(17, Choice::Fastest), (257, Choice::Fastest), (257, Choice::Deterministic)] {
            let mode = if stream_tokens == 17 { Mode::Checked } else { Mode::Fast };
            let gpu = Simulator::new(Order::Ascending, mode);
            gpu.set_copies(Copies::Late(testing::seed()));
            let groups = HostExperts { group_bytes: 1, groups_ahead: 1, ring_groups: 1, ..HostExperts::new(cpu()) };
            let host = HostExperts { stream_tokens, ..groups };
            let backend = Cuda::backend_with_host_experts(gpu.clone(), Options { choice }, host).unwrap();
            let model = load(name, Arc::new(backend), ExpertPlacement::Slots(experts / 2), Precision::Fast);
            let tokens = tokens(name);
            let mut runner = Runner::new(Arc::clone(&model), limits()).unwrap();
            let sequences = [(); 3].map(|()| runner.open_sequence().unwrap());
            let mut found = Vec::new();
            for (step, counts) in GROWING.into_iter().enumerate() {
                // Graphs are captured by then.
                if step == 4 {
                    gpu.set_limit(gpu.taken());
                }
                let mut batch = Batch::new();
                for ((&sequence, tokens), count) in sequences.iter().zip(&tokens).zip(counts).filter(|(_, n)| *n > 0) {
                    let start = runner.sequence_len(sequence).unwrap();
                    batch.push(sequence, &tokens[start..start + count], Outputs::All);
                }
                found.extend(runner.forward(&batch).unwrap().to_vec().unwrap());
            }
            assert!(runner.graphs().captures > 0);
            compare(name, TOLERANCES[0].1, vocab, &found, &expected);
            let usage = model.backend().offload().slot_usage().unwrap();
            println!("{name}, {choice:?}, prompts from {stream_tokens} tokens on are streamed: {usage:?}");
            assert!(usage.freed_bytes > 0 && usage.hits > 0, "{usage:?}");
        }
    }
}

/// What slots cannot give is an error that names the memory, and the sequence is as before.
#[test]
fn a_device_without_slots_to_free_is_an_error() {
    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    let backend = Cuda::backend_with_host_experts(gpu.clone(), Options::default(), HostExperts::new(cpu())).unwrap();
    let model = load(NAME, Arc::new(backend), ExpertPlacement::Slots(1), Precision::Fast);
    let mut runner = Runner::new(Arc::clone(&model), limits()).unwrap();
    let sequence = runner.open_sequence().unwrap();
    let tokens = &tokens(NAME)[0];
    gpu.set_limit(0);
    let mut batch = Batch::new();
    batch.push(sequence, &tokens[..9], Outputs::All);
    let error = runner.forward(&batch).expect_err("nothing can be allocated");
    assert!(error.is_out_of_memory() && !error.is_of_device(), "{error}");
    assert_eq!(runner.sequence_len(sequence).unwrap(), 0);
    assert!(model.backend().offload().slot_usage().unwrap().freed_bytes > 0);
    // With memory again, the same batch has its tokens, without slots.
    gpu.set_limit(u64::MAX);
    let found = runner.forward(&batch).unwrap().to_vec().unwrap();
    let all =
        load(NAME, device(Options::default(), None, Mode::Fast).unwrap(), ExpertPlacement::Device, Precision::Fast);
    let expected = logits_of(NAME, &all, &[[9, 0, 0]]).unwrap();
    compare(NAME, TOLERANCES[0].1, all.spec().vocab, &found, &expected);
    assert_eq!(model.backend().offload().slot_usage().unwrap().hits, 0);
}

/// A runner that a full device has no room for gets that of slots, and drafts that need more memory get theirs.
#[test]
fn a_full_device_frees_slots_for_runners_and_drafts() {
    let name = "heads/glm4moe-f32";
    let text = &tokens(name)[0];
    let drafts = |full: [bool; 2]| {
        let gpu = Simulator::new(Order::Ascending, Mode::Fast);
        let backend =
            Cuda::backend_with_host_experts(gpu.clone(), Options::default(), HostExperts::new(cpu())).unwrap();
        let prediction_heads = true;
        let experts = ExpertPlacement::Slots(3);
        let options = LoadOptions { experts, prediction_heads, precision: Precision::Exact, ..LoadOptions::default() };
        let model = Arc::new(Model::with_backend(file(name), Arc::new(backend), options).unwrap());
        let freed = || model.backend().offload().slot_usage().unwrap().freed_bytes;
        let before = gpu.taken();
        let runner = Runner::new(Arc::clone(&model), limits()).unwrap();
        let of_runner = gpu.taken() - before;
        drop(runner);
        gpu.set_limit(if full[0] { gpu.taken() + of_runner - 1 } else { u64::MAX });
        let mut runner = Runner::new(Arc::clone(&model), limits()).unwrap();
        assert_eq!(freed() > 0, full[0]);
        gpu.set_limit(u64::MAX);
        let sequence = runner.open_sequence().unwrap();
        let mut batch = Batch::new();
        batch.push(sequence, &text[..text.len() - 1], Outputs::Last);
        runner.forward(&batch).unwrap();
        let before = freed();
        gpu.set_limit(if full[1] { gpu.taken() } else { u64::MAX });
        let drafts = runner.draft(&[DraftOrder { sequence, text, count: 4 }]).unwrap();
        assert_eq!(freed() > before, full[1]);
        drafts
    };
    let expected = drafts([false, false]);
    assert_eq!(expected[0].len(), 4);
    assert_eq!(drafts([true, false]), expected);
    assert_eq!(drafts([false, true]), expected);
}

/// If the system refuses to pin the experts, they are copied without, and a notice says so. Without a mailbox nothing works, which
/// is an error.
#[test]
fn refused_pins_are_reported() {
    let (experts, top_k) = experts_of(NAME);
    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    let backend = Cuda::backend_with_host_experts(gpu.clone(), Options::default(), HostExperts::new(cpu())).unwrap();
    let backend = Arc::new(backend);
    let load = || load(NAME, Arc::clone(&backend), ExpertPlacement::Slots(top_k.min(experts - 1)), Precision::Fast);
    let pinned = load();
    assert!(gpu.pinned() > 0 && pinned.notices().is_empty(), "{:?}", pinned.notices());
    let expected = logits_of(NAME, &pinned, &SINGLE_TOKENS).unwrap();
    drop(pinned);
    assert_eq!(gpu.pinned(), 0);

    gpu.refuse_pins(true);
    let model = load();
    let notice: String = model.notices().iter().map(ToString::to_string).collect();
    assert!(notice.contains("refused to pin") && notice.contains("ulimit -l"), "{notice}");
    assert_eq!(gpu.pinned(), 0);
    let found = logits_of(NAME, &model, &SINGLE_TOKENS).unwrap();
    compare(NAME, TOLERANCES[0].1, model.spec().vocab, &found, &expected);
    assert!(model.backend().offload().slot_usage().unwrap().insertions > 0);

    let gpu = Simulator::new(Order::Ascending, Mode::Fast);
    gpu.refuse_pins(true);
    let error = Cuda::backend_with_host_experts(gpu, Options::default(), HostExperts::new(cpu())).unwrap_err();
    assert!(error.to_string().contains("pinning") && error.to_string().contains("mailbox"), "{error}");
}
