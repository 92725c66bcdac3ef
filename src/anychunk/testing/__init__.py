"""Test classes for codecs, formats and decoders, to inherit in any project's tests.

`codecs.CodecContract`, `formats.FormatContract` and `decoders.DecoderContract` check what every
codec, every format and every decoder must do. They need pytest.
"""
