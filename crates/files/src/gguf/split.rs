//! The names of the parts of a split model: `NAME-00001-of-0000N.gguf`.

use std::path::{Path, PathBuf};

/// A part's file name, split into stem and numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PartName<'a> {
    folder: Option<&'a Path>,
    stem: &'a str,
    /// From 1.
    pub(super) number: u16,
    pub(super) count: u16,
}

impl<'a> PartName<'a> {
    /// `None` if the file is not named like a part.
    pub(super) fn parse(path: &'a Path) -> Option<PartName<'a>> {
        let name = path.file_name()?.to_str()?.strip_suffix(".gguf")?;
        let (rest, count) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
        if !digits(number) || !digits(count) {
            return None;
        }
        let (number, count) = (number.parse().ok()?, count.parse().ok()?);
        (1..=count).contains(&number).then_some(PartName { folder: path.parent(), stem, number, count })
    }

    /// The path of another part.
    pub(super) fn sibling(&self, number: u16) -> PathBuf {
        let name = format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count);
        self.folder.map_or_else(|| PathBuf::from(&name), |folder| folder.join(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let path = Path::new("models/a-of-b-00002-of-00003.gguf");
        let name = PartName::parse(path).unwrap();
        assert_eq!((name.stem, name.number, name.count), ("a-of-b", 2, 3));
        assert_eq!(name.sibling(3), Path::new("models/a-of-b-00003-of-00003.gguf"));
        assert_eq!(name.sibling(2), path);

        for other in [
            "model.gguf",
            "m-00001-of-00002.bin",
            "m-1-of-2.gguf",
            "m-00000-of-00002.gguf",
            "m-00003-of-00002.gguf",
            "m-00001-of-99999.gguf",
            "m-+0001-of-00002.gguf",
            "00001-of-00002.gguf",
        ] {
            assert_eq!(PartName::parse(Path::new(other)), None, "{other}");
        }
    }
}
