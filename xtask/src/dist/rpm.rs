//! Packages for Fedora, RHEL and openSUSE, by rpmbuild.

use std::fs;

use super::artifacts::Inputs;
use super::build::Built;
use super::pages;
use super::product::{DESCRIPTION, LICENCE, NAME, REPOSITORY, SUMMARY};
use super::run_with;
use super::targets::GLIBC;
use super::tree::{self, Item};
use crate::root;

pub(super) fn make(inputs: &Inputs) -> Result<(), String> {
    inputs.built.iter().filter(|built| !built.target.rpm.is_empty()).try_for_each(|built| package(inputs, built))
}

fn package(inputs: &Inputs, built: &Built) -> Result<(), String> {
    let (version, architecture) = (&inputs.release.version, built.target.rpm);
    let doc = format!("usr/share/doc/{NAME}");
    let mut items = vec![
        Item::file(format!("usr/bin/{NAME}"), built.program()).executable(),
        Item::file(format!("{doc}/CHANGELOG.md"), root().join("CHANGELOG.md")),
        Item::file(format!("{doc}/LICENSE-MIT"), root().join("LICENSE-MIT")),
        Item::file(format!("{doc}/LICENSE-APACHE"), root().join("LICENSE-APACHE")),
    ];
    items.extend(pages::generated(inputs.built, "usr/share")?);
    // The folder of zsh has another name than Debian's.
    items.iter_mut().for_each(|item| item.to = item.to.replace("zsh/vendor-completions", "zsh/site-functions"));
    let files: String = items.iter().map(|item| format!("/{}\n", item.to)).collect();
    let stage = inputs.stage.join("rpm");
    let (root, top) = (stage.join("root"), stage.join("build"));
    let _ = fs::remove_dir_all(&stage);
    tree::write(&root, &items, inputs.release)?;
    let spec = format!(
        "Name: {NAME}\nVersion: {version}\nRelease: 1\nSummary: {SUMMARY}\nLicense: {LICENCE}\nURL: {REPOSITORY}\n\
         Requires: libc.so.6(GLIBC_{GLIBC})(64bit)\nAutoReqProv: no\n\n%description\n{DESCRIPTION}\n\n%install\n\
         cp -a {}/. %{{buildroot}}/\n\n%files\n%defattr(-,root,root)\n{files}",
        root.display(),
    );
    let spec_path = stage.join("gristmill.spec");
    super::sums::write(&spec_path, &spec)?;
    let definitions = [
        format!("_topdir {}", top.display()),
        format!("_rpmdir {}", top.display()),
        "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm".to_owned(),
        "_buildhost gristmill".to_owned(),
        "use_source_date_epoch_as_buildtime 1".to_owned(),
        "clamp_mtime_to_source_date_epoch 1".to_owned(),
        "_binary_payload w9.xzdio".to_owned(),
        // The program is stripped, and can be of another architecture.
        "__os_install_post %{nil}".to_owned(),
        "debug_package %{nil}".to_owned(),
        "_build_id_links none".to_owned(),
    ];
    let mut arguments = vec!["-bb", "--quiet", "--target", architecture];
    definitions.iter().for_each(|definition| arguments.extend(["--define", definition]));
    let spec_path = spec_path.display().to_string();
    arguments.push(&spec_path);
    run_with(&[("SOURCE_DATE_EPOCH", &inputs.release.time.to_string())], "rpmbuild", &arguments)?;
    let name = format!("{NAME}-{version}-1.{architecture}.rpm");
    fs::copy(top.join(&name), inputs.out.join(&name)).map(drop).map_err(|error| format!("{name}: {error}"))
}
