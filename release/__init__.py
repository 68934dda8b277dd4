"""Makes what is shipped from the wheel, the Debian package and the offline bundle, and the pages of docs/ that are made
of the code's tables; counts the product's lines. Not part of the wheel."""
