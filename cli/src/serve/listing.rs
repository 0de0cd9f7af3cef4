//! The page that lists a directory.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use quicket_files::Entry;

use crate::html::escape;
use crate::units::Bytes;

/// Everything but RFC 3986's unreserved characters.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An HTML page with links to the entries of the directory at `path`.
pub(crate) fn page(path: &str, entries: &[Entry]) -> String {
    let title = escape(&percent_decode_str(path).decode_utf8_lossy());
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title></head>\n\
         <body>\n<h1>{title}</h1>\n<table>\n"
    );
    if path != "/" {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td></tr>\n");
    }
    for entry in entries {
        let slash = if entry.is_dir { "/" } else { "" };
        // "./" keeps names with a colon from being taken for a scheme.
        let link = percent_encode(entry.name.as_encoded_bytes(), IN_PATH);
        let name = escape(&entry.name.to_string_lossy());
        let size = if entry.is_dir { String::new() } else { Bytes(entry.len).to_string() };
        // Writing to a String cannot fail.
        let _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{name}{slash}</a></td><td>{size}</td></tr>"
        );
    }
    page.push_str("</table>\n</body>\n</html>\n");
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        let entry = Entry { name: "<script>\"".into(), is_dir: false, len: 1500 };
        let page = page("/%3Cb%3E/", &[entry]);
        assert!(!page.contains("<script>") && !page.contains("<b>"), "{page}");
        assert!(page.contains("href=\"./%3Cscript%3E%22\""), "{page}");
        // Nor can they be shown as others: here, as "exe.txt" backwards.
        let name = "a'\u{202e}txt.exe\u{7}";
        let entry = Entry { name: name.into(), is_dir: false, len: 0 };
        let other = self::page("/", &[entry]);
        assert!(other.contains(">a&#39;\u{fffd}txt.exe\u{fffd}</a>"), "{other}");
        assert!(page.contains("1.5 kB") && page.contains("href=\"../\""), "{page}");
    }
}
