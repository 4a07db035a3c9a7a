//! Cases of the whole: names, values, texts of errors, files and command lines.
