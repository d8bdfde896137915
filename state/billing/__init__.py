"""What calls cost: reserve before, settle after.

ledger.py       reservations of this process: lease, marks, settlement, retries
reservation.py  what one request holds, has used, and is billed
upkeep.py       ends what dead processes left, deletes what is old
settling.py     usage lines of one organisation, several in one transaction
postings.py     every change of a budget, as one SQL transaction each
usage.py        what was billed: lines and sums
audit.py        whether usage lines, budgets and reservations add up
"""
