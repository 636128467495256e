"""Skip-gram with negative sampling over tables of rows."""
