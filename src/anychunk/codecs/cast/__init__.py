"""How `scale_offset` and `cast_value` compute: number types, rounding, fused passes."""
