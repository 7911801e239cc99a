"""An exam for judges of programs: hacks must be rejected, honest programs accepted, answers repeated."""
