"""nearsure inside other libraries: a module for each, imported by its name.

None is imported here, as each needs its library.
"""
