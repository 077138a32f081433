use super::*;

#[test]
fn what_does_not_fit_is_refused_before_writing() {
    let path = std::env::temp_dir().join(format!("gristmill-too-large-{}.gguf", std::process::id()));
    // More layers than fit on any disk.
    let synthetic = Synthetic::parse("deepseek-v3:F32", Some(1024)).unwrap();
    let needed = synthetic.file_bytes().unwrap();
    let free = fs4::available_space(std::env::temp_dir()).unwrap();
    assert!(needed > free, "this disk has {needed} bytes free");
    match write(&synthetic, &path, &Verbosity::default()).unwrap_err() {
        Failure::Message(message) => assert!(message.contains("are free; name another folder"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert!(!path.exists());
}

#[test]
fn the_help_names_every_model() {
    let command = <BenchArgs as Args>::augment_args(clap::Command::new("bench"));
    let argument = command.get_arguments().find(|it| it.get_id() == "synthetic").unwrap();
    let help = argument.get_help().unwrap().to_string();
    for name in gristmill_lab::synthetic::names() {
        assert!(help.contains(name), "{name}");
    }
}
