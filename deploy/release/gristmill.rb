class Gristmill < Formula
  desc "@SUMMARY@"
  homepage "@REPOSITORY@"
  version "@VERSION@"
  license any_of: ["MIT", "Apache-2.0"]

  on_macos do
    url "@ADDRESS@/@SOURCE@"
    sha256 "@SOURCE_SHA256@"
    depends_on "rust" => :build
  end

  on_linux do
    on_intel do
      url "@ADDRESS@/@X86_64@"
      sha256 "@X86_64_SHA256@"
    end
    on_arm do
      url "@ADDRESS@/@AARCH64@"
      sha256 "@AARCH64_SHA256@"
    end
  end

  def install
    if OS.mac?
      system "cargo", "install", *std_cargo_args(path: "crates/cli")
      generate_completions_from_executable(bin/"gristmill", "completions")
      (man1/"gristmill.1").write Utils.safe_popen_read(bin/"gristmill", "man")
    else
      bin.install "gristmill"
      man1.install "share/man/man1/gristmill.1"
      bash_completion.install "share/bash-completion/completions/gristmill"
      zsh_completion.install "share/zsh/vendor-completions/_gristmill"
      fish_completion.install "share/fish/vendor_completions.d/gristmill.fish"
    end
  end

  test do
    assert_match "gristmill #{version}", shell_output("#{bin}/gristmill --version")
    system bin/"gristmill", "run", "Once upon a time", "-n", "8"
  end
end
