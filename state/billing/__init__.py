"""What calls cost: reserve before, settle after.

ledger.py       reservations of this process: leases, settlement in groups, retries
reservation.py  what one request holds, has used, and is billed: in micro-EUR, and in the units of its model
upkeep.py       marks what was used, ends what dead processes left, deletes what is old
postings.py     every change of a budget, as one SQL transaction each
usage.py        what is billed: entries and bills, lines and sums
audit.py        whether usage lines, budgets and reservations add up
"""
