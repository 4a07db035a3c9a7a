//! The command lines of `kelvin bench report` and `kelvin bench compare`.
