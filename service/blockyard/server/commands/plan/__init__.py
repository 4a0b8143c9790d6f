"""``blockyard plan``: how many blocks fit, what they serve, and where they lie.

command        the flow: line, request, plan, output
options        what may stand on the line
option_types   an option that sets a field of the request, and what is written behind one
document       the request, from files and options
refusal        why there is no plan, and what would do
figures        what a plan serves, at its own length and over all; what a token takes
report         the plan for people: answers, groups, memory, tensors
headline       the answers, in sentences
bars           how each rank's memory divides
tables         lines and columns at any width
abbreviations  numbers, sizes, ranks and names as people read them
chart          what the plan serves at each context length, as a picture
"""
