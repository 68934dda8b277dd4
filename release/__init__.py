"""Makes what is shipped from the wheel, the Debian package and the offline bundle, and the pages of docs/ that are made
of the code's tables. Not part of the wheel."""
