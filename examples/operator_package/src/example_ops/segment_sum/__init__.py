"""SegmentSum: sums of consecutive rows."""
