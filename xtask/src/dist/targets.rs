//! The platforms, as a table.

/// The oldest glibc that the programs run with: that of RHEL 8 and Debian 10.
pub(super) const GLIBC: &str = "2.28";

/// A platform.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// Rust's name.
    pub(super) triple: &'static str,
    pub(super) system: System,
    /// Architecture in the names of `.deb` files; empty if there is none.
    pub(super) deb: &'static str,
    /// Architecture in the names of `.rpm` files; empty if there is none.
    pub(super) rpm: &'static str,
    /// Architecture in the names of images.
    pub(super) image: &'static str,
    /// `uname -s` and `uname -m` there, for the install script.
    pub(super) uname: (&'static str, &'static str),
    /// Whether `dist` builds it unless targets are named.
    pub(super) is_default: bool,
    /// Whether the program has run there, or how it was checked. It is printed next to the artifact.
    pub(super) proof: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    Linux,
    Windows,
}

pub(super) const TARGETS: [Target; 3] = [
    Target {
        triple: "x86_64-unknown-linux-gnu",
        system: System::Linux,
        deb: "amd64",
        rpm: "x86_64",
        image: "amd64",
        uname: ("Linux", "x86_64"),
        is_default: true,
        proof: "runs on a bare root in `dist check`",
    },
    Target {
        triple: "aarch64-unknown-linux-gnu",
        system: System::Linux,
        deb: "arm64",
        rpm: "aarch64",
        image: "arm64",
        uname: ("Linux", "aarch64"),
        is_default: true,
        proof: "runs in an emulator on a bare root in `dist check`, never on an Arm CPU",
    },
    Target {
        triple: "x86_64-pc-windows-gnu",
        system: System::Windows,
        deb: "",
        rpm: "",
        image: "",
        uname: ("", ""),
        is_default: false,
        proof: "never linked, never run",
    },
];

impl Target {
    pub(super) fn named(triple: &str) -> Result<Target, String> {
        let known = || TARGETS.map(|target| target.triple).join(", ");
        let found = TARGETS.into_iter().find(|target| target.triple == triple);
        found.ok_or_else(|| format!("--target: is unknown (found {triple}, expected one of {})", known()))
    }

    /// The name for zig, which has the version of glibc.
    pub(super) fn zig(&self) -> String {
        match self.system {
            System::Linux => format!("{}.{GLIBC}", self.triple),
            System::Windows => self.triple.to_owned(),
        }
    }

    /// The file of the program.
    pub(super) fn program(&self) -> &'static str {
        match self.system {
            System::Linux => "gristmill",
            System::Windows => "gristmill.exe",
        }
    }

    /// The files of the C library.
    pub(super) fn libraries(&self) -> &'static [&'static str] {
        match self.system {
            System::Linux => &["libgristmill.so", "libgristmill.a"],
            System::Windows => &["gristmill.dll", "libgristmill.dll.a"],
        }
    }
}
