"""``blockyard plan``: how many blocks fit, what they serve, and where they lie.

command        the flow: line, request, plan, output
options        what may stand on the line
field_option   an option that sets a field of the request
values, sizes  what is written behind an option
document       the request, from files and options
refusal        why there is no plan
report         the plan for people, from headline, group_report, bars and tensor_report
memory         how each rank's memory divides
ranges, fold   names and ranks, abbreviated
curve, chart   what the plan serves at each context length, as figures and as a picture
"""
