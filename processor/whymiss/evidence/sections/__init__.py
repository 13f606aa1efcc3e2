"""The sections of the evidence, one file each; ``model.evidence`` says what is in them.

What is asked of the whole fleet is found as a value that merges: what one part of the fleet says and what another
one says give what the whole says.
"""
