def show(report): 
    import json; print(json.dumps(report, indent=1)[:6000])
def plot(report, folder): pass
